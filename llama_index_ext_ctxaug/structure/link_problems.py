"""Contradictions in the links and numbers of documents."""

from __future__ import annotations

from typing import Literal, NamedTuple

ProblemKind = Literal[
    "self",
    "other_document",
    "contradiction",
    "ring",
    "doubt",
    "not_at_hand",
    "repeated_number",
    "repeated_page",
    "differing_page",
    "cut_file",
    "hole",
    "against_offsets",
]
"""Kinds of contradictions between nodes: see `LinkProblem`."""


class LinkProblem(NamedTuple):
    """A contradiction in the links or numbers of a document.

    Attributes:
        kind: one of
            "self" (a link to the node itself, removed),
            "other_document" (a link into another document, removed),
            "contradiction" (a link that a better founded one excludes, removed),
            "ring" (a link back into its own chain, removed),
            "doubt" (links that exclude each other with nothing to decide between them, kept),
            "not_at_hand" (a link to a node that was not passed in, kept unless documents are complete; the
            first or last child of a parent that was passed in),
            "repeated_number" (a chunk number that occurs twice, not used),
            "repeated_page" (two documents of a file have the same page label: the file's are kept apart),
            "differing_page" (two pages of a file that follow one another differ in metadata that may tell
            files apart, linked),
            "cut_file" (the first page of a file has a number above 1, or its last one a number below the
            total),
            "hole" (a missing chunk number or child, not linked over),
            "against_offsets" (a link that contradicts the character offsets, kept).
        node_id: id of the node with the problem; of a source document for the
            kinds about pages.
        other_id: id of the node at the other end, if there is one.
    """

    kind: ProblemKind
    node_id: str
    other_id: str | None = None
