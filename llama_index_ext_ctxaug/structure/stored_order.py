"""The order of the nodes of a document that is in a docstore, from all that its nodes carry."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from llama_index.core.schema import BaseNode

from llama_index_ext_ctxaug.docstores.batch_reader import BatchReader, ReadRequest, Search
from llama_index_ext_ctxaug.structure.document_order import ReadingOrder
from llama_index_ext_ctxaug.structure.neighbor_links import NeighborLinks
from llama_index_ext_ctxaug.structure.order_keys import OrderKeys
from llama_index_ext_ctxaug.structure.relationships import keeps_no_links, relations

MAX_DOCUMENT_SCAN = 1000
"""Maximum chunks of one document to read for a link that the document's list does not show."""


@dataclass
class StoredOrders:
    """The links between the nodes of documents, each resolved once.

    Attributes:
        reader: the loaded nodes.
        keys: metadata keys that give the place of a node in its document.
    """

    reader: BatchReader
    keys: OrderKeys
    _resolved: dict[str, NeighborLinks] = field(default_factory=dict)

    def load(self, source: str, node_id: str | None = None) -> Search[NeighborLinks | None]:
        """Load the nodes of a document whose list is loaded, and resolve their links.

        Args:
            source: id of the document.
            node_id: id of the node around which to read, if the document is long.

        Returns:
            The links; None if the store has no list of the document.
        """
        order = self.reader.documents.get(source)
        if source in self._resolved or order is None:
            return self._resolved.get(source)
        place = order.places.get(node_id or "", 0)
        start = max(0, min(place - MAX_DOCUMENT_SCAN // 2, len(order.ids) - MAX_DOCUMENT_SCAN))
        ids = order.ids[start : start + MAX_DOCUMENT_SCAN]
        hits = self.reader.hits
        lost = [id_ for id_ in ids if id_ in hits and keeps_no_links(hits[id_])]
        yield ReadRequest(nodes=ids, copies=lost)
        unlisted = [id_ for id_ in (*hits, node_id or "") if id_ not in order.places]
        nodes = {id_: node for id_ in (*ids, *unlisted) if (node := self._node(id_, source)) is not None}
        gaps = [id_ for id_, after in zip(ids, (*ids[1:], ""), strict=False) if after not in nodes]
        if nodes.keys() == set(order.ids):
            gaps = []
        self._resolved[source] = NeighborLinks(
            ReadingOrder(nodes, replace(self.keys, document=()), trusted=False, gaps=gaps)
        )
        return self._resolved[source]

    def resolved(self, source: str | None) -> NeighborLinks | None:
        """Return the links of a document that has been loaded."""
        return self._resolved.get(source or "")

    def _node(self, id_: str, source: str) -> BaseNode | None:
        """Return a node of the document, the store's copy where the hit has lost its relationships."""
        node = self.reader.node(id_)
        if node is not None and keeps_no_links(node):
            node = self.reader.copy(id_) or node
        return node if node is not None and (relations(node).source or id_) == source else None
