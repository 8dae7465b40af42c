"""From hits to chunks: the walks through a document, and what may end them."""
