"""Parameters of the budget-aware augmenters, compared by `evidence.py --settings`."""

from __future__ import annotations

from functools import partial

from evidence_data import Chunks
from evidence_ways import Way, Ways
from llama_index.core.postprocessor.types import BaseNodePostprocessor

from llama_index_ext_ctxaug import (
    PrevNextNodePostprocessor,
    RelevantSegmentsPostprocessor,
    SectionPostprocessor,
)

WINDOWS = ((512, 128), (256, 64), (128, 64))


def setting_ways(chunks: Chunks, scorer: BaseNodePostprocessor) -> dict[str, Way]:
    """Return ways by name, for choosing parameters."""
    ways = Ways(chunks, scorer)
    both = partial(PrevNextNodePostprocessor, mode="both", output="passages")
    found = {"top-k": ways.plain()}
    for tokens in (32, 64, 128, 256, 512):
        found[f"Section, {tokens} a side"] = ways.fixed(
            SectionPostprocessor, expansion_tokens=tokens, output="passages"
        )
    for reach in (1, 2):
        found[f"PrevNext, both {reach}, passage after passage"] = ways.fixed(both, num_nodes=reach)
        for part in (0.25, 0.5, 0.75):
            name = f"PrevNext, both {reach}, token_budget, hits fill {part:.0%}"
            found[name] = ways.budgeted(both, of_budget=part, num_nodes=reach)
    for window, stride in WINDOWS:
        for overlap in ("suppress", "merge", "keep"):
            found[_name(window, stride, overlap=overlap)] = ways.brsr(
                window_tokens=window, stride_tokens=stride, overlap=overlap, count=overlap == "merge"
            )
        for tokens in (64, 128, 512):
            found[_name(window, stride, grown=tokens)] = ways.brsr(
                window_tokens=window, stride_tokens=stride, expansion_tokens=tokens
            )
    for window, stride in ((512, 256), (256, 128), (128, 32), (128, 128)):
        found[_name(window, stride)] = ways.brsr(window_tokens=window, stride_tokens=stride)
    for hits in (5, 20, 40):
        found[_name(128, 64, hits=hits)] = ways.brsr(hits, window_tokens=128, stride_tokens=64)
    found["RelevantSegments"] = ways.budgeted(RelevantSegmentsPostprocessor, output="passages")
    return found


def _name(window: int, stride: int, overlap: str = "suppress", grown: int = 256, hits: int = 10) -> str:
    return f"BRSR, {window}/{stride}, {overlap}, {grown} a side, {hits} hits"
