"""The structure of a document: neighbors, pages, parents, order, headings."""
