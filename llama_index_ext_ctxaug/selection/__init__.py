"""Select the chunks that matter: relevance, segments, merged parents, windows without repeats."""
