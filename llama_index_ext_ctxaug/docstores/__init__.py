"""Read document stores: batched, in one round trip where the store can, sync and async."""
