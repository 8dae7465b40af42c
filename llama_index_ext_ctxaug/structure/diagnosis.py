"""Check an index or a docstore for problems that hinder augmenters, each with its remedy."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from llama_index.core.indices.base import BaseIndex
from llama_index.core.schema import BaseNode, MetadataMode, NodeWithScore
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.storage.docstore.types import BaseDocumentStore

from llama_index_ext_ctxaug.docstores.batch_reader import BatchReader, ReadRequest
from llama_index_ext_ctxaug.docstores.index_docstore import docstore_of_index, ids_in_memory
from llama_index_ext_ctxaug.docstores.read_step import reads_one_by_one
from llama_index_ext_ctxaug.errors import ConfigurationError
from llama_index_ext_ctxaug.flow import run
from llama_index_ext_ctxaug.structure.relationships import relations

SAMPLE = 50
"""Chunks that are examined."""

_DOCUMENTS = 5
"""Documents of these chunks that are listed, because a list may cost as much as its document."""

_LISTED = 100
"""Chunks that are read of each listed document."""

_FILE_KEYS = ("file_path", "file_name")

FindingKind = Literal[
    "chunks_missing",
    "documents_only",
    "documents_missing",
    "next_missing",
    "offsets_false",
    "page_documents",
    "page_labels_twice",
    "duplicates",
    "single_reads",
]


class Finding(NamedTuple):
    """A problem that hinders augmenters.

    Attributes:
        kind: identifies the finding.
        message: what was found, with an example.
        remedy: what to do about it.
    """

    kind: FindingKind
    message: str
    remedy: str


@dataclass(frozen=True)
class Diagnosis:
    """The findings on a sample of chunks; `str()` gives them as text.

    Attributes:
        chunks: number of chunks examined.
        findings: what was found, the gravest first.
    """

    chunks: int
    findings: Sequence[Finding]

    def __str__(self) -> str:
        lines = [f"{self.chunks} chunks examined: {len(self.findings) or 'no'} findings"]
        for finding in self.findings:
            lines += [f"- {finding.kind}: {finding.message}", f"  {finding.remedy}"]
        return "\n".join(lines)


def diagnose(
    index_or_docstore: BaseIndex[Any] | BaseDocumentStore,
    nodes: Sequence[BaseNode | NodeWithScore] | None = None,
) -> Diagnosis:
    """Check an index or a docstore on a sample of chunks, in two batched reads whatever its size.

    Args:
        index_or_docstore: the index with the nodes to expand, or the docstore that augmenters read.
        nodes: chunks as a retriever returns them; at most 50 are examined. None to retrieve some from the
            index, which embeds one query, or to take them from a docstore in memory.

    Raises:
        ConfigurationError: the docstore is not in memory and `nodes` is None; or neither store of the index
            can be read.

    Example:
        ```python
        print(diagnose(index))
        ```
    """
    if isinstance(index_or_docstore, BaseIndex):
        docstore = docstore_of_index(index_or_docstore)
    else:
        docstore = index_or_docstore
    if nodes is None:
        nodes = _sample(index_or_docstore)
    chunks = {node.node_id: node.node if isinstance(node, NodeWithScore) else node for node in nodes[:SAMPLE]}
    loaded = _Loaded(BatchReader(docstore, {}), chunks)
    loaded.read()
    findings = [finding for check in _CHECKS if (finding := check(loaded)) is not None]
    return Diagnosis(len(chunks), findings)


def _sample(source: BaseIndex[Any] | BaseDocumentStore) -> Sequence[BaseNode | NodeWithScore]:
    if isinstance(source, BaseIndex):
        return source.as_retriever(similarity_top_k=SAMPLE).retrieve("overview")
    if isinstance(source, SimpleDocumentStore):
        ids = ids_in_memory(source)
        nodes = source.get_nodes(ids[:: len(ids) // (2 * SAMPLE) + 1])
        return [node for node in nodes if node.source_node is not None]
    raise ConfigurationError(
        f"diagnose: {type(source).__name__} cannot list a few of its chunks: "
        "pass nodes=retriever.retrieve(...)"
    )


@dataclass
class _Loaded:
    """The sampled chunks, and what was read around them.

    Attributes:
        reader: the reader, with everything that was read.
        chunks: the sampled chunks by id.
        sources: their source documents' ids, in order.
        known: sampled and read chunks, without source documents.
    """

    reader: BatchReader
    chunks: Mapping[str, BaseNode]
    sources: Sequence[str] = ()
    known: dict[str, BaseNode] = field(default_factory=dict)

    def read(self) -> None:
        """Read copies, source documents and lists; then the chunks that the lists name."""
        named = (relations(node).source for node in self.chunks.values())
        self.sources = list(dict.fromkeys(source for source in named if source is not None))
        listed = self.sources[:_DOCUMENTS]
        run(self.reader.fetch([ReadRequest(nodes=[*self.chunks, *self.sources], documents=listed)]))
        beside = [id_ for source in listed for id_ in self._listed(source)[:_LISTED]]
        for id_ in self.chunks:
            beside += self.listed_after(id_)
        run(self.reader.fetch([ReadRequest(nodes=beside)]))
        stored = {id_: node for id_, node in self.reader.stored.items() if node is not None}
        self.known = {**self.chunks, **stored}
        for source in self.sources:
            self.known.pop(source, None)

    def stored(self, node_id: str) -> BaseNode:
        """Return the stored copy of a sampled chunk, which has all of its relationships, or the chunk."""
        return self.reader.copy(node_id) or self.chunks[node_id]

    def listed_after(self, node_id: str) -> Sequence[str]:
        """Return the id after a chunk in its document's list, if there is one."""
        source = relations(self.stored(node_id)).source
        order = self.reader.documents.get(source) if source else None
        place = order.places.get(node_id) if order else None
        return order.ids[place + 1 : place + 2] if order and place is not None else ()

    def _listed(self, source: str) -> Sequence[str]:
        order = self.reader.documents.get(source)
        return order.ids if order else ()


def _missing_chunks(loaded: _Loaded) -> Finding | None:
    missing = [id_ for id_ in loaded.chunks if loaded.reader.copy(id_) is None]
    if not missing:
        return None
    count = (
        f"{len(missing)} of {len(loaded.chunks)} chunks are not in the docstore (the first is {missing[0]!r})"
    )
    if any(loaded.reader.copy(source) for source in loaded.sources):
        return Finding(
            "documents_only",
            f"{count}, though their documents are: it is an ingestion pipeline's docstore, which holds input "
            "documents, or a pipeline's upserts have deleted the chunks",
            "keep the chunks in a docstore of their own: docstore.add_documents([*documents, *nodes])",
        )
    return Finding(
        "chunks_missing",
        f"{count}, so they get no neighbors that they do not link to",
        "use from_index(index), which reads a vector store that keeps the chunks, or add the chunks: "
        "docstore.add_documents([*documents, *nodes])",
    )


def _missing_documents(loaded: _Loaded) -> Finding | None:
    missing = [source for source in loaded.sources if loaded.reader.copy(source) is None]
    if not missing:
        return None
    return Finding(
        "documents_missing",
        f"{len(missing)} of {len(loaded.sources)} source documents are not in the docstore (the first is "
        f"{missing[0]!r}), so white space between chunks is a guess and passages have exact=False",
        "add the documents beside their chunks: docstore.add_documents(documents)",
    )


def _missing_next(loaded: _Loaded) -> Finding | None:
    lacking = []
    for id_ in loaded.chunks:
        own = relations(loaded.stored(id_))
        after = next((loaded.reader.copy(other) for other in loaded.listed_after(id_)), None)
        if own.next is None and after is not None:
            other = relations(after)
            if other.parent == own.parent and other.previous in (None, id_):
                lacking.append(id_)
    if not lacking:
        return None
    return Finding(
        "next_missing",
        f"{len(lacking)} chunks have no NEXT relationship though a chunk follows (the first is "
        f"{lacking[0]!r}), as LlamaIndex leaves them when nodes are parsed from nodes; augmenters find it at "
        "the cost of reads",
        "set it at ingestion: NeighborLinker()(nodes)",
    )


def _false_offsets(loaded: _Loaded) -> Finding | None:
    false = []
    for id_ in loaded.chunks:
        node = loaded.stored(id_)
        document = loaded.reader.copy(relations(node).source or "")
        start, end = getattr(node, "start_char_idx", None), getattr(node, "end_char_idx", None)
        if document is None or start is None or end is None:
            continue
        if document.get_content(MetadataMode.NONE)[start:end] != node.get_content(MetadataMode.NONE):
            false.append(id_)
    if not false:
        return None
    return Finding(
        "offsets_false",
        f"{len(false)} chunks have character offsets that are not theirs in the document (the first is "
        f"{false[0]!r}), as parsers in a row leave them",
        "augmenters check offsets and find the chunks by their text; use none of these offsets unchecked",
    )


def _files(nodes: Iterable[BaseNode]) -> Iterator[tuple[str, str, BaseNode]]:
    """Yield nodes that are of a file and a document, with the file's path and the document's id."""
    for node in nodes:
        file = next((node.metadata[key] for key in _FILE_KEYS if node.metadata.get(key)), None)
        source = relations(node).source
        if file is not None and source is not None:
            yield str(file), source, node


def _page_documents(loaded: _Loaded) -> Finding | None:
    sources: dict[str, set[str]] = defaultdict(set)
    for file, source, node in _files(loaded.known.values()):
        if "page_label" in node.metadata:
            sources[file].add(source)
    split = [file for file, documents in sources.items() if len(documents) > 1]
    if not split:
        return None
    key = next(key for key in _FILE_KEYS if any(key in node.metadata for node in loaded.known.values()))
    return Finding(
        "page_documents",
        f"the pages of {len(split)} files are documents of their own (the first is {split[0]!r}), "
        "so expansion ends at each page",
        f"pass document_key={key!r}, so that the pages of a file count as one document",
    )


def _labels_twice(loaded: _Loaded) -> Finding | None:
    sources: dict[tuple[str, str], set[str]] = defaultdict(set)
    for file, source, node in _files(loaded.known.values()):
        if "page_label" in node.metadata:
            sources[file, str(node.metadata["page_label"])].add(source)
    twice = [page for page, documents in sources.items() if len(documents) > 1]
    if not twice:
        return None
    file, label = twice[0]
    return Finding(
        "page_labels_twice",
        f"{len(twice)} pages are in more than one document (the first is page {label!r} of {file!r}): "
        "different files have one name, or a file was ingested twice",
        'pass a document_key that tells the files apart, such as ("tenant", "file_path"), '
        "or delete the old copy",
    )


def _duplicates(loaded: _Loaded) -> Finding | None:
    places: dict[tuple[str, int, str], str] = {}
    copies = []
    for id_, node in loaded.known.items():
        start, own = getattr(node, "start_char_idx", None), relations(node)
        file = next((file for file, _, _ in _files([node])), own.source)
        if start is None or file is None:
            continue
        page = str(node.metadata.get("page_label", ""))
        place = (f"{file} {page} {own.parent}", start, node.get_content(MetadataMode.NONE))
        if places.setdefault(place, id_) != id_:
            copies.append((places[place], id_))
    if not copies:
        return None
    return Finding(
        "duplicates",
        f"{len(copies)} chunks are there twice, with one text at one place of a document (the first are "
        f"{copies[0][0]!r} and {copies[0][1]!r}): a document was ingested again under new ids",
        "delete the old generation with index.delete_ref_doc(..., delete_from_docstore=True), and give "
        "documents ids that stay, such as SimpleDirectoryReader(filename_as_id=True)",
    )


def _single_reads(loaded: _Loaded) -> Finding | None:
    docstore = loaded.reader.docstore
    if not reads_one_by_one(docstore):
        return None
    return Finding(
        "single_reads",
        f"{type(docstore).__name__} is read one key at a time, so each hop costs a round trip for each node",
        "give its key-value store a read of many keys: register_bulk_read(...)",
    )


_CHECKS = (
    _missing_chunks,
    _duplicates,
    _labels_twice,
    _page_documents,
    _missing_next,
    _missing_documents,
    _false_offsets,
    _single_reads,
)
