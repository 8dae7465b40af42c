"""Growing from a hit, chunk by chunk, in one direction: how far, over which nodes, and why it ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from llama_index.core.schema import BaseNode

from llama_index_ext_ctxaug.docstores.batch_reader import ReadRequest, Search
from llama_index_ext_ctxaug.passages.passage import Edge, StopReason
from llama_index_ext_ctxaug.structure.adjacency import Adjacency, Direction

PREFETCH_HOPS = 3
"""From this many hops on, a document's list of nodes saves rounds: it costs one and replaces all but one."""


class StopAfter(NamedTuple):
    """The answer of a limit that takes a node and ends the expansion after it."""

    reason: StopReason


Filter = Callable[[BaseNode], StopReason | None]
"""Asked of each node that would be added: None for one that may be, else why not."""

StopCondition = Callable[[BaseNode], "StopReason | StopAfter | None"]
"""Called before a node is taken: None takes it, a reason stops before it, `StopAfter` stops after it."""


@dataclass(slots=True)
class Walk:
    """What growing from one hit in one direction gave.

    Attributes:
        hit_id: where it started.
        direction: towards the start or the end of the document.
        node_ids: the nodes it reached, nearest first; hits among them.
        stopped: why it ended.
        missing_id: the id that the store does not have, where that is the reason.
        repaired: adjacencies on its way that the nodes' own relationships do not state.
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
    limit: StopCondition | None = None,
    ahead: int = 0,
) -> Search[Walk]:
    """Grow from a hit in one direction, never out of its document.

    Args:
        links: where the node beside another is found.
        hit: the node to start from.
        direction: "previous" or "next".
        count: most nodes to reach.
        limit: asked before each node that is taken; None where all are.
        ahead: nodes to read with one that is not in hand, by the document's list where that is in hand.

    Returns:
        The walk; a cycle, a missing node, another document or the limit ends it early.
    """
    reader, towards_end = links.reader, direction == "next"
    result = Walk(hit.id_, direction)
    seen = {hit.id_}
    current, own = hit, links.relations(hit)
    document = own.document
    while len(result.node_ids) < count:
        id_, repaired = own.next if towards_end else own.previous, False
        if id_ is None:
            id_, repaired = yield from links.beside(current, direction)
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
            if not (yield from _of_one_document(links, hit, node)):
                result.stopped = "other_document"
                return result
            own, document = links.relations(node), links.document(hit)
        verdict = None if limit is None else limit(node)
        if verdict is not None and not isinstance(verdict, StopAfter):
            result.stopped = verdict
            return result
        seen.add(id_)
        result.node_ids.append(id_)
        if repaired:
            ends = (current.id_, id_)
            result.repaired.append(ends if direction == "next" else ends[::-1])
        if verdict is not None:
            result.stopped = verdict.reason
            break
        current = node
    return result


def _of_one_document(links: Adjacency, *nodes: BaseNode) -> Search[bool]:
    """Whether nodes are of one document; of hits that have lost theirs, the stored copies may know it."""
    for node in nodes:
        if links.document(node) is None:
            yield from links.with_copy(node)
    return len({links.document(node) for node in nodes}) == 1


def read_ahead(links: Adjacency, hit: BaseNode, previous: int, next_: int) -> Search[None]:
    """Bring the nodes around a hit into hand, as the document's list of nodes has them.

    The first read asks for the list and for the nodes directly beside the hit, or what it takes to find
    them, so that nothing is lost where there is no list; a wrong list costs a read, never a wrong answer.

    A hit that does not reach anything is read for its links alone, where it has lost them: others reach it.

    Args:
        links: where the nodes beside another are found.
        hit: the node in the middle.
        previous: nodes before it.
        next_: nodes after it.
    """
    own, stays = links.relations(hit), previous == next_ == 0
    unlinked = own.previous is None and own.next is None
    if own.source is None or (stays and unlinked):  # one read of the stored copy saves one each hop
        own = yield from links.with_copy(hit, ReadRequest(nodes=_beside(links, hit, previous, next_)))
    if own.source is None or stays:
        return
    lost = (previous and own.previous is None) or (next_ and own.next is None)
    yield ReadRequest(
        nodes=_beside(links, hit, previous, next_),
        copies=(hit.node_id,) if lost else (),
        documents=(own.source,),
    )
    order = links.reader.documents.get(own.source)
    place = order.places.get(hit.node_id) if order else None
    if order is not None and place is not None:
        yield ReadRequest(nodes=order.ids[max(0, place - previous) : place + next_ + 1])


def _beside(links: Adjacency, hit: BaseNode, previous: int, next_: int) -> list[str]:
    """Ids of the nodes directly beside a hit, or of what it takes to find them."""
    nodes: list[str] = []
    sides: tuple[tuple[Direction, int], ...] = (("previous", previous), ("next", next_))
    for direction, count in sides:
        if count and (id_ := links.link(hit, direction)) is not None:
            nodes.append(id_)
        elif count:
            nodes.extend(links.needed(hit, direction).nodes)
    return nodes


def _listed(links: Adjacency, node: BaseNode, direction: Direction, count: int) -> Sequence[str]:
    """Ids of the nodes beside a node in the document's list, where that is in hand and worth a look."""
    source = links.relations(node).source
    order = links.reader.documents.get(source) if source is not None and links.repair else None
    place = order.places.get(node.node_id) if order else None
    if order is None or place is None or count < PREFETCH_HOPS:
        return ()
    if direction == "next":
        return order.ids[place + 1 : place + 1 + count]
    return order.ids[max(0, place - count) : place]
