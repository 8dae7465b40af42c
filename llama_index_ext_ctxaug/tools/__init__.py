"""Tools with which an agent reads documents on by itself."""
