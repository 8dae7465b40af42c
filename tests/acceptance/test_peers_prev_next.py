"""Fixed neighbors as users of AutoRAG, Morphik, Onyx and RAGLite expect them."""

from __future__ import annotations

from typing import Any

import pytest
from llama_index.core.schema import TextNode

from llama_index_ext_ctxaug import PrevNextNodePostprocessor, read_provenance
from llama_index_ext_ctxaug.testing import docstore_of, hits, linked_document


def autorag_file(count: int = 30) -> list[TextNode]:
    """Return one file's chunks as AutoRAG stores them: neighbor ids in metadata, no relationships."""
    return [
        TextNode(
            id_=str(i),
            text=f"text {i}",
            metadata={"prev_id": str(i - 1) if i else None, "next_id": str(i + 1) if i < count - 1 else None},
        )
        for i in range(count)
    ]


@pytest.mark.parametrize(
    ("mode", "retrieved", "expected"),
    [
        ("next", [1], [1, 2]),
        ("next", [3], [3, 4]),
        ("next", [0, 29], [0, 1, 29]),
        ("next", [1, 2], [1, 2, 3]),
        ("previous", [1], [0, 1]),
        ("previous", [3], [2, 3]),
        ("previous", [0, 29], [0, 28, 29]),
        ("both", [1], [0, 1, 2]),
        ("both", [3], [2, 3, 4]),
        ("both", [0, 29], [0, 1, 28, 29]),
    ],
)
def test_ids_in_metadata(postprocess: Any, mode: str, retrieved: list[int], expected: list[int]) -> None:
    """Neighbors are found through AutoRAG's prev_id and next_id."""
    nodes = autorag_file()
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode=mode)
    result = postprocess(augmenter, hits(nodes, retrieved))
    assert [int(hit.node.node_id) for hit in result] == expected


def test_ids_under_other_keys(postprocess: Any) -> None:
    """The metadata keys are parameters; an unknown id ends the expansion."""
    nodes = [
        TextNode(id_="x", text="x", metadata={"after": "y"}),
        TextNode(id_="y", text="y", metadata={"after": "?"}),
    ]
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(nodes), num_nodes=3, next_id_key="after")
    assert [hit.node.node_id for hit in postprocess(augmenter, hits(nodes, [0]))] == ["x", "y"]


def test_pages_around_hits(postprocess: Any) -> None:
    """Pages 2 to 5 appear once; the provenance marks 2 and 5 as added, with the score None, not 0."""
    pages = linked_document(7)
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(pages), mode="both")
    result = postprocess(augmenter, hits(pages, [3, 4]))
    assert [hit.node for hit in result[1:3]] == [pages[3], pages[4]]
    assert [hit.node.node_id for hit in result] == [page.node_id for page in pages[2:6]]
    assert [
        provenance and provenance.role for provenance in map(read_provenance, (h.node for h in result))
    ] == [
        "neighbor",
        None,
        None,
        "neighbor",
    ]
    assert [hit.score for hit in result] == [None, 0.9, 0.8, None]


def test_runs_keep_the_rank_of_their_first_hit(postprocess: Any) -> None:
    """Hits d1:5, d2:1, d1:6 give d1:5-6, then d2:1."""
    first, second = linked_document(8, source_id="d1"), linked_document(3, source_id="d2")
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(first, second), num_nodes=0)
    result = postprocess(augmenter, [*hits(first, [5]), *hits(second, [1]), *hits(first, [6])])
    assert [hit.node for hit in result] == [first[5], first[6], second[1]]


def test_documents_stay_apart(postprocess: Any) -> None:
    """Hits in two documents are never one run."""
    first, second = linked_document(2, source_id="A"), linked_document(2, source_id="B")
    augmenter = PrevNextNodePostprocessor(docstore=docstore_of(first, second), mode="both")
    result = postprocess(augmenter, [*hits(second, [0]), *hits(first, [1])])
    assert [hit.node.node_id for hit in result] == [node.node_id for node in [*second, *first]]
