"""Which of the chunks matter: relevance, segments, merged parents, windows without repeats."""
