"""Retrievers with the names and signatures of LlamaIndex's, over the postprocessors."""
