"""Pure functions and values on chunks and their text: no store, no model, no I/O."""
