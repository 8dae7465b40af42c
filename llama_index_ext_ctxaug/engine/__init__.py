"""One call of an augmenter, from the hits to the nodes of the output."""
