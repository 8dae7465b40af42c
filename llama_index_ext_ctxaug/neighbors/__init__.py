"""Finding and reading the nodes around a hit: all access to document stores lives here."""
