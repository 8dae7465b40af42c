"""How a document hangs together: neighbors, pages, parents, order, headings."""
