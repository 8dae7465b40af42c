"""Ask a language model in which direction context is missing."""
