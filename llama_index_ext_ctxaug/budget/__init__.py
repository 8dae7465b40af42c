"""Fit chunks into a number of tokens."""
