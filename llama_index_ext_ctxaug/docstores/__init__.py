"""Read document stores in batches, in one round trip where the store can, sync and async."""
