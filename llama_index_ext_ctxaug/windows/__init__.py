"""Cut texts again: sentences, sliding windows, slices of nodes, windows in metadata."""
