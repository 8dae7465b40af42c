"""Provenance as one flat string: small, versioned, and bound to the text that it describes."""

from __future__ import annotations

import json
import re
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from hashlib import blake2b
from json.encoder import encode_basestring_ascii
from typing import Any
from uuid import UUID

from llama_index.core.schema import BaseNode

from llama_index_ext_ctxaug.passages.fingerprint import Fingerprint, find_parts, fingerprint
from llama_index_ext_ctxaug.passages.offsets import text_of
from llama_index_ext_ctxaug.passages.passage import Role
from llama_index_ext_ctxaug.passages.pieces import Piece, Provenance

MAX_BYTES = 2000
"""Maximum size of the string, unless its ids alone take more. Long metadata is left out first."""

STORED: tuple[Role, ...] = ("hit", "neighbor", "parent")
"""Roles of nodes that are stored; nodes of other roles are made."""

_VERSION = 1
_ROLES = (*STORED, "passage", "window")
_INITIALS: dict[str, Role] = {role[0]: role for role in STORED}

_KEYS = len(',"shared":,"own":,"parts":[1000000,""]')
_UUID = re.compile("[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_dumped = json.JSONEncoder(separators=(",", ":")).encode

_Number = Callable[[str | None], int | None]
"""Returns the place of an id in the table of ids."""


def encode(provenance: Provenance, node: BaseNode) -> str:
    """Encode the provenance of a node as one string; the node's metadata is not repeated in it."""
    hits, node_id = provenance.hits, node.id_
    if provenance.role in STORED and not provenance.pieces and len({*hits, node_id}) > len(hits):
        head = _stored_head(
            provenance.role, provenance.hops, provenance.stopped_previous, provenance.stopped_next, len(hits)
        )  # each neighbor of a call has such a string
        return f"{head}{','.join(map(_quoted, (*hits, node_id)))}]}}"
    ids: dict[str, int] = {}

    def number(id_: str | None) -> int | None:
        return None if id_ is None else ids.setdefault(id_, len(ids))

    data: dict[str, Any] = {
        "version": _VERSION,
        "role": provenance.role,
        "hits": list(map(number, provenance.hits)),
        "hops": provenance.hops,
        "stopped": [provenance.stopped_previous, provenance.stopped_next],
    }
    if provenance.role in STORED:
        data["node"] = number(node.node_id)
    else:
        data.update(_made(provenance, text_of(node), number))
    data["ids"] = list(map(_packed, ids))
    origin = _dumped(data)
    if not provenance.pieces:
        return origin
    room = MAX_BYTES - len(origin)
    shared, own = _metadata([piece.metadata for piece in provenance.pieces], node.metadata, room)
    described = _dumped({"shared": shared, "own": own})
    parts = fingerprint(text_of(node), room - len(described) - _KEYS)
    return f'{origin[:-1]},{described[1:-1]},"parts":{_dumped(parts)}}}'


@lru_cache(maxsize=1000)
def _stored_head(
    role: str, hops: int, stopped_previous: str | None, stopped_next: str | None, hits: int
) -> str:
    """Write the string of a stored node up to its ids: those of that many hits, and its own."""
    data = {
        "version": _VERSION,
        "role": role,
        "hits": list(range(hits)),
        "hops": hops,
        "stopped": [stopped_previous, stopped_next],
        "node": hits,
        "ids": [],
    }
    return _dumped(data).removesuffix("]}")


def decode(value: str, node: BaseNode) -> Provenance | None:
    """Decode the string of a node as far as it holds for the node's text; None if it is another string."""
    try:
        data = json.loads(value)
        if data["version"] != _VERSION or data["role"] not in _ROLES:
            return None
        ids = [_unpacked(id_) for id_ in data["ids"]]
        provenance = Provenance(
            role=data["role"],
            hits=tuple(ids[number] for number in data["hits"]),
            hops=data["hops"],
            stopped_previous=data["stopped"][0],
            stopped_next=data["stopped"][1],
        )
        if provenance.role in STORED:
            return provenance._replace(node_id=ids[data["node"]])
        return _bound(provenance, data, ids, node)
    except (AttributeError, IndexError, KeyError, TypeError, ValueError):
        return None


def _made(provenance: Provenance, text: str, number: _Number) -> dict[str, Any]:
    """Return what is said of a made node; piece by piece, starts count from the end of the piece before."""
    pieces, cut = provenance.pieces, provenance.cut
    ends = [0, *(piece.end for piece in pieces)]
    return {
        "text": [len(text), _digest(text)],
        "exact": provenance.exact,
        "cut": cut and [number(cut[0]), *cut[1:]],
        "pieces": [
            [piece.start - end for piece, end in zip(pieces, ends, strict=False)],
            [piece.end - piece.start for piece in pieces],
            [piece.source_start for piece in pieces],
            [number(piece.node_id) for piece in pieces],
            [number(piece.document_id) for piece in pieces],
            [piece.role[0].upper() if piece.exact else piece.role[0] for piece in pieces],
            [piece.hops for piece in pieces],
            [list(map(number, piece.hits)) for piece in pieces],
        ],
    }


def _bound(provenance: Provenance, data: Mapping[str, Any], ids: Sequence[str], node: BaseNode) -> Provenance:
    """Complete the provenance of a made node by what holds for its text."""
    text, (length, digest) = text_of(node), data["text"]
    pieces = tuple(_pieces(data, ids, node.metadata))
    if len(text) == length and _digest(text) == digest:
        cut = data["cut"] and (ids[data["cut"][0]], *data["cut"][1:])
        return provenance._replace(pieces=pieces, cut=cut, exact=data["exact"])
    parts = find_parts(text, Fingerprint(*data["parts"]), length) if pieces and data["parts"] else ()
    again = (
        (part, piece.cut(part.original, part.original + part.length)) for part in parts for piece in pieces
    )
    found = tuple(piece.moved(part.start) for part, piece in again if piece is not None)
    return provenance._replace(pieces=found, exact=False)


def _pieces(data: Mapping[str, Any], ids: Sequence[str], metadata: Mapping[str, Any]) -> Iterator[Piece]:
    shared = {key: metadata[key] for key in data.get("shared", ()) if key in metadata}
    end = 0
    for place, fields in enumerate(zip(*data["pieces"], strict=True)):
        gap, length, source, node, document, role, hops, hits = fields
        own = {key: values[place] for key, values in data["own"].items() if values[place] is not None}
        start, end = end + gap, end + gap + length
        yield Piece(
            node_id=ids[node],
            role=_INITIALS[role.lower()],
            hits=tuple(ids[hit] for hit in hits),
            hops=hops,
            start=start,
            end=end,
            source_start=source,
            source_end=None if source is None else source + length,
            exact=role.isupper(),
            document_id=None if document is None else ids[document],
            metadata={**shared, **own},
        )


def _metadata(
    chunks: Sequence[Mapping[str, Any]], metadata: Mapping[str, Any], room: int
) -> tuple[list[str], dict[str, list[Any]]]:
    """Return the keys whose values the chunks share with the node, and the chunks' values of other keys."""
    keys = list(dict.fromkeys(key for chunk in chunks for key in chunk))
    shared = [
        key
        for key in keys
        if key in metadata and all(key in chunk and chunk[key] == metadata[key] for chunk in chunks)
    ]
    columns = {key: [chunk.get(key) for chunk in chunks] for key in keys if key not in shared}
    sizes = {key: size for key, values in columns.items() if (size := _size({key: values})) is not None}
    room -= _KEYS + len(_dumped(shared))
    own: dict[str, list[Any]] = {}
    for key in sorted(sizes, key=sizes.__getitem__):
        room -= sizes[key]
        if room < 0:
            break
        own[key] = columns[key]
    return shared, own


def _size(value: Any) -> int | None:
    """Return the bytes of a value as JSON; None if JSON cannot hold it."""
    try:
        return len(_dumped(value))
    except (TypeError, ValueError):
        return None


def _digest(text: str) -> str:
    digest = blake2b(text.encode("utf-8", "surrogatepass"), digest_size=9).digest()
    return urlsafe_b64encode(digest).decode()


@lru_cache(maxsize=10_000)  # the ids of a call come back in each of its nodes
def _quoted(id_: str) -> str:
    return encode_basestring_ascii(_packed(id_))


def _packed(id_: str) -> str:
    """Shorten a UUID to 23 characters, the first of them a mark."""
    if _UUID.fullmatch(id_):
        return "~" + urlsafe_b64encode(bytes.fromhex(id_.replace("-", ""))).decode().rstrip("=")
    return "=" + id_ if id_.startswith(("~", "=")) else id_


def _unpacked(id_: str) -> str:
    if id_.startswith("~"):
        return str(UUID(bytes=urlsafe_b64decode(id_[1:] + "==")))
    return id_.removeprefix("=")
