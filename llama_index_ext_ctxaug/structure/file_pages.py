"""The pages of a file as one document, for readers that make a document of each page."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from llama_index.core.schema import BaseNode

from llama_index_ext_ctxaug.docstores.batch_reader import BatchReader, ReadRequest, Search, document_order
from llama_index_ext_ctxaug.passages.passage import Edge
from llama_index_ext_ctxaug.structure.neighbor_links import NeighborLinks
from llama_index_ext_ctxaug.structure.order_keys import File, OrderKeys
from llama_index_ext_ctxaug.structure.pages import PageOrder, order_pages
from llama_index_ext_ctxaug.structure.relationships import Relations, relations
from llama_index_ext_ctxaug.structure.stored_order import MAX_DOCUMENT_SCAN, StoredOrders


@dataclass(frozen=True, slots=True)
class _Pages:
    """The documents of a file, and their order."""

    ids: list[str]
    order: PageOrder

    def after(self, id_: str, step: int) -> Iterator[tuple[str, bool]]:
        """Yield the pages after one (before it, if step is -1), with True from the first guess on."""
        links = [(self.order.followers, False), (self.order.guessed, True)]
        place, is_guess = self.ids.index(id_), False
        seen = {place}
        while True:
            for pairs, guess in links:
                beside = pairs if step == 1 else {after: before for before, after in pairs.items()}
                if place in beside:
                    place, is_guess = beside[place], is_guess or guess
                    break
            else:
                return
            if place in seen:
                return
            seen.add(place)
            yield self.ids[place], is_guess


@dataclass
class FilePages:
    """The order of the pages of files.

    Reads the store's list of all documents, once per call and only where a page ends; that read grows with
    the store. For files whose pages are nodes without a source it reads all nodes.

    Attributes:
        reader: the loaded nodes.
        keys: metadata keys of the file and the page.
        orders: the order of the nodes of each page.
        same_label: for files that are kept apart, two documents with the same page label.
    """

    reader: BatchReader
    keys: OrderKeys
    orders: StoredOrders
    same_label: dict[File, Edge] = field(default_factory=dict)
    _files: dict[bool, dict[File, _Pages]] = field(default_factory=dict)

    def beside(
        self, node: BaseNode, own: Relations, step: int, ahead: int, ends: bool
    ) -> Search[tuple[str, bool] | None]:
        """Search for the chunk at the near edge of the neighboring page.

        Args:
            node: a node without a parent.
            own: its relations.
            step: 1 for the following page, -1 for the page before.
            ahead: maximum pages to load at once.
            ends: True if the links of the page are known to end at the node.

        Returns:
            The id of the chunk, and True if it is a guess; None where the file ends, or where it is not
            known that the page ends at the node or where the neighboring page begins.
        """
        is_root = own.source is None
        yield ReadRequest(all_documents=not is_root, all_roots=is_root)
        pages, page = self._pages(own.document, is_root), own.source or node.node_id
        if pages is None or page not in pages.ids:
            return None
        is_guess = False
        if not ends:
            edge = _edge((yield from self.orders.load(page)), step)
            if edge is None or edge[0] != node.node_id:
                return None
            is_guess = edge[1]
        following = list(pages.after(page, step))
        lists = (self.reader.documents[id_] for id_, _ in following[:ahead])
        yield ReadRequest(nodes=[id_ for order in lists if order for id_ in order.ids][:MAX_DOCUMENT_SCAN])
        for id_, page_is_guess in following:
            links = yield from self.orders.load(id_)
            edge = _edge(links, -step)
            if edge is not None:
                return edge[0], is_guess or page_is_guess or edge[1]
            if links is not None and links.nodes:
                return None
        return None

    def _pages(self, file: Any, is_root: bool) -> _Pages | None:
        """Return the pages of a file; None for a file that is kept apart."""
        if is_root not in self._files:
            self._files[is_root] = dict(self._read_files(is_root))
        return self._files[is_root].get(file)

    def _read_files(self, is_root: bool) -> Iterator[tuple[File, _Pages]]:
        documents = (self.reader.all_roots if is_root else self.reader.all_documents) or {}
        files: dict[File, list[str]] = {}
        for id_, info in documents.items():
            if (file := self.keys.file(info.metadata)) is not None:
                files.setdefault(file, []).append(id_)
        for file, ids in files.items():
            order = order_pages([documents[id_].metadata.get(self.keys.page) for id_ in ids])
            if order.repeated:
                first, second = order.repeated
                self.same_label[file] = (ids[first], ids[second])
                continue
            for id_ in ids:
                self.reader.documents.setdefault(id_, document_order(documents[id_]))
            yield file, _Pages(ids, order)


def _edge(links: NeighborLinks | None, step: int) -> tuple[str, bool] | None:
    """Return the first node of a page (the last, if step is 1), and True if it is a guess."""
    if links is None:
        return None
    beside = links.chains.followers if step == 1 else links.chains.preceding
    edges = [id_ for id_, node in links.nodes.items() if id_ not in beside and relations(node).parent is None]
    return (edges[0], bool(links.guesses)) if len(edges) == 1 else None
