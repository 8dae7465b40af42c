"""The registry of bulk reads, and what their implementations share."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Any, NamedTuple

from llama_index.core.storage.docstore.keyval_docstore import KVDocumentStore
from llama_index.core.storage.docstore.types import BaseDocumentStore
from llama_index.core.storage.kvstore.types import BaseKVStore

from llama_index_ext_ctxaug.docstores.event_loops import own_loop

Keys = Mapping[str, Sequence[str]]
"""Keys to read, by the collection of the key-value store that holds them."""

Values = Mapping[str, Mapping[str, Any]]
"""Values found, by collection and key: JSON as text or parsed. Keys not found are absent."""


class BulkRead(NamedTuple):
    """A multi-key read of one kind of key-value store.

    Attributes:
        read: `read(kvstore, keys) -> values`.
        aread: the same without blocking the event loop; None to run `read` in a thread.
        client: name of the key-value store's attribute with its async client, which serves one event loop.
    """

    read: Callable[[Any, Keys], Values]
    aread: Callable[[Any, Keys], Awaitable[Values]] | None = None
    client: str | None = None

    def own_loop(self, docstore: Any) -> AbstractContextManager[None]:
        """Use a docstore's async client in its own event loop only.

        Raises:
            NotImplementedError: the client belongs to another event loop.
        """
        client = getattr(docstore._kvstore, self.client, None) if self.client else None
        return nullcontext() if client is None else own_loop(client)


registered: dict[str, BulkRead] = {}

_REPLACED = (
    *("get_nodes", "get_node", "get_document", "get_ref_doc_info"),
    *("aget_nodes", "aget_node", "aget_document", "aget_ref_doc_info"),
)
"""The docstore methods that a bulk read replaces."""


def register_bulk_read(
    kvstore: type[BaseKVStore] | str,
    read: Callable[[Any, Keys], Values],
    aread: Callable[[Any, Keys], Awaitable[Values]] | None = None,
) -> None:
    """Register a multi-key read for a key-value store class.

    It serves every `KVDocumentStore` over that class and its subclasses. A docstore or subclass with
    read methods of its own (`get_nodes`, `get_document`, `get` ...) is read through those instead.
    A docstore that is not a `KVDocumentStore` needs no registration: its `get_nodes` is called.

    Args:
        kvstore: the key-value store class, or its qualified name, which need not be importable.
        read: `read(kvstore, keys) -> values`, both by collection; values are JSON, as text or parsed.
            It raises `NotImplementedError` where this store cannot be read in bulk; the store's own
            methods are then used.
        aread: the same as a coroutine. Without one, or where it raises `NotImplementedError`, `read`
            runs in a thread.

    Example:
        ```python
        def read(kvstore, keys):
            return {name: kvstore.client.get_many(name, ids) for name, ids in keys.items()}

        register_bulk_read(MyKVStore, read)
        ```
    """
    registered[kvstore if isinstance(kvstore, str) else _name(kvstore)] = BulkRead(read, aread)


def bulk_read_of(docstore: BaseDocumentStore) -> BulkRead | None:
    """Return the bulk read equivalent to this docstore's own methods; None if there is none."""
    if not isinstance(docstore, KVDocumentStore) or not _inherits(docstore, KVDocumentStore, _REPLACED):
        return None
    kvstore = getattr(docstore, "_kvstore", None)
    for base in type(kvstore).__mro__:
        bulk = registered.get(_name(base))
        if bulk is not None:
            return bulk if _inherits(kvstore, base, ("get", "aget")) else None
    return None


def _inherits(store: object, base: type, names: Iterable[str]) -> bool:
    """True if a store has the base's methods; checked at each read, since both can be patched."""
    own, kind = vars(store), type(store)
    return all(name not in own and getattr(kind, name) is getattr(base, name) for name in names)


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def private(store: Any, name: str) -> Any:
    """Return a private attribute of a store, which another version may have moved.

    Raises:
        NotImplementedError: the store has no such attribute, or it is None.
    """
    value = getattr(store, name, None)
    if value is None:
        raise NotImplementedError(f"it has no {name}")
    return value


def found(ids: Sequence[str], values: Sequence[Any]) -> Mapping[str, Any]:
    """Pair keys with their values, leaving out keys without one."""
    return {id_: value for id_, value in zip(ids, values, strict=True) if value is not None}


def from_rows(keys: Keys, rows: Iterable[tuple[str, str, Any]]) -> Values:
    """Group rows of collection, key and value."""
    values: dict[str, dict[str, Any]] = {collection: {} for collection in keys}
    for collection, key, value in rows:
        values[collection][key] = value
    return values
