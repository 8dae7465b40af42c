"""The pages of a file as one document, for readers that make a document of each page."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import pairwise

from llama_index.core.schema import BaseNode
from llama_index.core.storage.docstore.types import RefDocInfo

from llama_index_ext_ctxaug.docstores.batch_reader import BatchReader, ReadRequest, Search, document_order
from llama_index_ext_ctxaug.docstores.strategies import Fields
from llama_index_ext_ctxaug.passages.passage import Edge
from llama_index_ext_ctxaug.structure.neighbor_links import NeighborLinks
from llama_index_ext_ctxaug.structure.order_keys import File, OrderKeys
from llama_index_ext_ctxaug.structure.pages import Pages, files_of, pages_of
from llama_index_ext_ctxaug.structure.relationships import Relations, relations
from llama_index_ext_ctxaug.structure.stored_order import MAX_DOCUMENT_SCAN, StoredOrders


@dataclass
class FilePages:
    """The order of the pages of files.

    Reads the store's list of all documents, once per call and only where a page ends; that read grows with
    the store. If pages are nodes without a source, it reads all nodes. A store that finds nodes
    by their metadata is read for the nodes of the file instead.

    Attributes:
        reader: the loaded nodes.
        keys: metadata keys of the file and the page.
        orders: the order of the nodes of each page.
        same_label: for files that are kept apart, two documents with the same page label.
        namesakes: for the values of document keys that several files have, one of these files.
        doubtful: for files whose pages may be of several files, two pages that follow one another, and the
            metadata key in which they differ.
        unordered: files with some pages of unknown order.
    """

    reader: BatchReader
    keys: OrderKeys
    orders: StoredOrders
    same_label: dict[File, Edge] = field(default_factory=dict)
    doubtful: dict[File, tuple[str, str, str]] = field(default_factory=dict)
    unordered: dict[File, None] = field(default_factory=dict)
    namesakes: dict[File, File] = field(default_factory=dict)
    _shared: dict[File, File] = field(default_factory=dict)
    _documents: dict[tuple[bool, Fields], Mapping[str, RefDocInfo]] = field(default_factory=dict)
    _files: dict[tuple[bool, Fields], dict[File, list[str]]] = field(default_factory=dict)
    _ordered: dict[tuple[File, bool, Fields], Pages | None] = field(default_factory=dict)

    def beside(
        self, node: BaseNode, own: Relations, step: int, ahead: int, ends: bool
    ) -> Search[tuple[str, bool] | None]:
        """Search for the chunk at the near edge of the neighboring page.

        Args:
            node: a node.
            own: its relations.
            step: 1 for the following page, -1 for the page before.
            ahead: maximum pages to load at once.
            ends: True if the links of the page are known to end at the node.

        Returns:
            The id of the chunk, and True if it is a guess; None where the file ends, or where it is not
            known that the page ends at the node or where the neighboring page begins.
        """
        file, is_root = own.document, own.source is None
        if not isinstance(file, tuple) or own.parent is not None:
            return None
        fields: Fields = ()
        if self.reader.lists_are_costly:
            fields = tuple((key, node.metadata[key]) for key in self.keys.document)
            yield ReadRequest(fields=(fields,))
        else:
            yield ReadRequest(all_documents=not is_root, all_roots=is_root)
        page, pages = own.source or node.node_id, self._pages(file, is_root, fields)
        if pages is None or page not in pages.ids:
            return None
        is_guess = False
        if not ends:
            edge = _edge((yield from self.orders.load(page)), step)
            if edge is None or edge[0] != node.node_id:
                return None
            is_guess = edge[1]
        following = list(_after(pages, page, step))
        lists = (self.reader.documents[id_] for id_, _ in following[:ahead])
        yield ReadRequest(nodes=[id_ for order in lists if order for id_ in order.ids][:MAX_DOCUMENT_SCAN])
        for id_, page_is_guess in following:
            links = yield from self.orders.load(id_)
            edge = _edge(links, -step)
            if edge is not None:
                self._note_difference(file, pages, page, id_)
                return edge[0], is_guess or page_is_guess or edge[1]
            if links is not None and links.nodes:
                return None
        return None

    def places(self, file: File, nodes: Sequence[BaseNode]) -> list[int] | None:
        """Order nodes of different pages of a file; None if the file is kept apart."""
        metadata = {relations(node).source or node.node_id: node.metadata for node in nodes}
        pages = pages_of([*metadata], metadata, self.keys)
        if self._is_kept_apart(file, pages):
            return None
        for first, second in pairwise(pages.ids[place] for place in pages.order.places):
            self._note_difference(file, pages, first, second)
        return pages.order.places

    def _is_kept_apart(self, file: File, pages: Pages) -> bool:
        if pages.order.repeated:
            first, second = pages.order.repeated
            self.same_label[file] = (pages.ids[first], pages.ids[second])
        return pages.order.repeated is not None

    def _note_difference(self, file: File, pages: Pages, first: str, second: str) -> None:
        if key := pages.difference(first, second):
            self.doubtful.setdefault(file, (first, second, key))

    def _pages(self, file: File, is_root: bool, fields: Fields) -> Pages | None:
        """Return the pages of a file; None for a file that is kept apart."""
        if (file, is_root, fields) not in self._ordered:
            self._ordered[file, is_root, fields] = self._order(file, is_root, fields)
        return self._ordered[file, is_root, fields]

    def _list(self, is_root: bool, fields: Fields) -> None:
        """Find the files of the listed documents, and those that share the values of document keys."""
        listed = self.reader.all_roots if is_root else self.reader.all_documents
        if fields:
            listed = _documents_of(self.reader.with_fields[fields], is_root)
        self._documents[is_root, fields] = listed or {}
        files = files_of({id_: info.metadata for id_, info in (listed or {}).items()}, self.keys)
        self._files[is_root, fields] = files
        first: dict[File, File] = {}
        for file in files:
            named = file[: len(self.keys.document)]
            if (other := first.setdefault(named, file)) != file:
                self._shared[named] = max(file, other, key=len)

    def _order(self, file: File, is_root: bool, fields: Fields) -> Pages | None:
        if (is_root, fields) not in self._files:
            self._list(is_root, fields)
        documents, ids = self._documents[is_root, fields], self._files[is_root, fields].get(file)
        if ids is None:
            return None
        named = file[: len(self.keys.document)]
        if named in self._shared:
            self.namesakes[named] = self._shared[named]
        pages = pages_of(ids, {id_: documents[id_].metadata for id_ in ids}, self.keys)
        if self._is_kept_apart(file, pages):
            return None
        if pages.order.guessed and not self.reader.documents_have_order:
            self.unordered[file] = None
            pages = replace(pages, order=replace(pages.order, guessed={}))
        for id_ in pages.ids:
            self.reader.documents.setdefault(id_, document_order(documents[id_]))
        return pages


def _after(pages: Pages, id_: str, step: int) -> Iterator[tuple[str, bool]]:
    """Yield the pages after one (before it, if step is -1), with True from the first guess on."""
    links = [(pages.order.followers, False), (pages.order.guessed, True)]
    if step == -1:
        links = [({after: before for before, after in pairs.items()}, guess) for pairs, guess in links]
    place, is_guess = pages.ids.index(id_), False
    seen = {place}
    while True:
        for beside, guess in links:
            if place in beside:
                place, is_guess = beside[place], is_guess or guess
                break
        else:
            return
        if place in seen:
            return
        seen.add(place)
        yield pages.ids[place], is_guess


def _documents_of(nodes: Iterable[BaseNode], is_root: bool) -> dict[str, RefDocInfo]:
    """Group nodes by their source documents, or take those without one as documents of one node."""
    documents: dict[str, RefDocInfo] = {}
    for node in nodes:
        source = relations(node).source
        if (source is None) == is_root:
            info = documents.setdefault(source or node.node_id, RefDocInfo(metadata=node.metadata))
            info.node_ids.append(node.node_id)
    return documents


def _edge(links: NeighborLinks | None, step: int) -> tuple[str, bool] | None:
    """Return the first node of a page (the last, if step is 1), and True if it is a guess."""
    if links is None:
        return None
    beside = links.chains.followers if step == 1 else links.chains.preceding
    edges = [id_ for id_, node in links.nodes.items() if id_ not in beside and relations(node).parent is None]
    return (edges[0], bool(links.guesses)) if len(edges) == 1 else None
