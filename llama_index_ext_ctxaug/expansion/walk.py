"""Walk from a hit, chunk by chunk, in one direction."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from llama_index.core.schema import BaseNode

from llama_index_ext_ctxaug.docstores.batch_reader import ReadRequest, Search
from llama_index_ext_ctxaug.passages.passage import Edge, StopReason
from llama_index_ext_ctxaug.structure.adjacency import Adjacency
from llama_index_ext_ctxaug.structure.order_keys import Direction

PREFETCH_HOPS = 3
"""Hops from which a document's list of nodes saves round trips: it costs one and replaces all but one."""


class StopAfter(NamedTuple):
    """The answer of a stop condition that takes a node and ends the walk after it."""

    reason: StopReason


Filter = Callable[[BaseNode], StopReason | None]
"""Called for each node that would be added: None to add it, else the reason against it."""

StopCondition = Callable[[BaseNode], "StopReason | StopAfter | None"]
"""Called before a node is taken: None takes it, a reason stops before it, `StopAfter` stops after it."""


@dataclass(slots=True)
class Walk:
    """The nodes reached from one hit in one direction.

    Attributes:
        hit_id: id of the hit.
        direction: towards the start or the end of the document.
        node_ids: ids of the nodes reached, nearest first; other hits may be among them.
        stopped: why the walk ended.
        missing_id: the id that the docstore does not have, if that ended the walk.
        repaired: adjacencies on the way that the nodes' own relationships do not state.
    """

    hit_id: str
    direction: Direction
    node_ids: list[str] = field(default_factory=list)
    stopped: StopReason = "count"
    missing_id: str | None = None
    repaired: list[Edge] = field(default_factory=list)


def walk(
    links: Adjacency,
    hit: BaseNode,
    direction: Direction,
    *,
    count: int,
    stop: StopCondition | None = None,
    ahead: int = 0,
) -> Search[Walk]:
    """Walk from a hit in one direction, never out of its document.

    Args:
        links: finds the node beside another.
        hit: the node to start from.
        direction: "previous" or "next".
        count: maximum number of nodes to reach.
        stop: called before each node is taken; None to take all.
        ahead: nodes to read together with one that is not loaded, by the document's list if that is loaded.

    Returns:
        The walk. A cycle, a missing node, another document or the stop condition ends it early.
    """
    reader, towards_end = links.reader, direction == "next"
    result = Walk(hit.id_, direction)
    seen = {hit.id_}
    current, own = hit, links.relations(hit)
    document = own.document
    while len(result.node_ids) < count:
        id_, repaired = own.next if towards_end else own.previous, False
        if id_ is None:
            id_, repaired = yield from links.beside(current, direction, count - len(result.node_ids))
        if id_ is None:
            result.stopped = "document_end"
            return result
        if id_ in seen:
            result.stopped = "cycle"
            return result
        node = reader.node(id_)
        if node is None:
            left = count - len(result.node_ids)
            more = _listed(links, current, direction, min(ahead, left)) if ahead else ()
            yield ReadRequest((id_, *more))
            node = reader.node(id_)
        if node is None:
            result.stopped, result.missing_id = "missing", id_
            return result
        own = links.relations(node)
        if own.document != document:
            if not (yield from _are_of_one_document(links, hit, node)):
                result.stopped = "other_document"
                return result
            own, document = links.relations(node), links.relations(hit).document
        verdict = None if stop is None else stop(node)
        if verdict is not None and not isinstance(verdict, StopAfter):
            result.stopped = verdict
            return result
        seen.add(id_)
        result.node_ids.append(id_)
        if repaired:
            result.repaired.append((current.id_, id_) if towards_end else (id_, current.id_))
        if verdict is not None:
            result.stopped = verdict.reason
            break
        current = node
    return result


def _are_of_one_document(links: Adjacency, *nodes: BaseNode) -> Search[bool]:
    """Compare documents, with the stored copies of hits that have lost theirs."""
    for node in nodes:
        if links.relations(node).document is None:
            yield from links.with_copy(node)
    return len({links.relations(node).document for node in nodes}) == 1


def read_ahead(links: Adjacency, hit: BaseNode, previous: int, next_: int) -> Search[None]:
    """Load the nodes around a hit in the order of the document's list.

    The first read asks for the list and for the nodes directly beside the hit, or what it takes to find
    them, so nothing is lost where there is no list. A wrong list costs a read, never a wrong answer. For
    a hit that is not expanded only lost links are read, since other hits may reach it.

    Args:
        links: finds the nodes beside another.
        hit: the node in the middle.
        previous: number of nodes before it.
        next_: number of nodes after it.
    """
    own, stays = links.relations(hit), previous == next_ == 0
    unlinked = own.previous is None and own.next is None
    if own.source is None or (stays and unlinked):  # one read of the stored copy saves one for each hop
        own = yield from links.with_copy(hit, ReadRequest(nodes=_beside(links, hit, previous, next_)))
    if own.source is None or stays:
        return
    lost = (previous and own.previous is None) or (next_ and own.next is None)
    yield ReadRequest(
        nodes=_beside(links, hit, previous, next_),
        copies=(hit.node_id,) if lost else (),
        documents=(own.source,),
    )
    nodes = links.listed(hit, previous, next_)
    parent = links.reader.node(own.parent or "") if links.keys.across_parents else None
    if parent is not None:  # neighbors may have other parents, which follow one another as their children do
        above = links.parent(parent)
        nodes = [*nodes, *links.listed(parent, previous, next_), *([above] if above else [])]
    yield ReadRequest(nodes=nodes)


def _beside(links: Adjacency, hit: BaseNode, previous: int, next_: int) -> list[str]:
    """Return the ids of the nodes directly beside a hit, or of the nodes it takes to find them."""
    nodes: list[str] = []
    sides: tuple[tuple[Direction, int], ...] = (("previous", previous), ("next", next_))
    for direction, count in sides:
        if count and (id_ := links.link(hit, direction)) is not None:
            nodes.append(id_)
        elif count:
            nodes.extend(links.needed(hit, direction).nodes)
    return nodes


def _listed(links: Adjacency, node: BaseNode, direction: Direction, count: int) -> Sequence[str]:
    """Return ids beside a node in the document's list, if that is loaded and saves round trips."""
    if not links.repair or count < PREFETCH_HOPS:
        return ()
    return links.listed(node, *((count, 0) if direction == "previous" else (0, count)))
