"""The tables and the chart of `evidence.py`."""

from __future__ import annotations

import platform
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from evidence_measure import BUDGETS, MIDDLE, Result
from llama_index.core import __version__ as core_version

from llama_index_ext_ctxaug import __version__

OURS = "RelevantSegments"
CHARTED = {
    "top-k": ("tab:gray", "-"),
    "top-k, chunks of 256": ("tab:green", "-"),
    "LlamaIndex PrevNext, both 1": ("tab:orange", "--"),
    "LlamaIndex PrevNext, both 2": ("tab:red", "--"),
    "LlamaIndex AutoMerging, families of 4": ("tab:brown", "--"),
    "dsRAG's sums (find_all)": ("tab:purple", ":"),
    "BRSR, windows 512/128": ("tab:blue", "-"),
    OURS: ("black", "-"),
}
"""The ways in the chart, with color and line."""


@dataclass(frozen=True)
class Title:
    """The data of a measurement.

    Attributes:
        corpus: the data set.
        retriever: "BM25", "embedding" or "fusion".
        size: tokens of a chunk.
        questions: how many.
        scorer: ranks again for ways that rerank.
    """

    corpus: str
    retriever: str
    size: int
    questions: int
    scorer: str

    def __str__(self) -> str:
        return f"{self.corpus}, {self.retriever}, chunks of {self.size}, {self.questions} questions"


Results = dict[str, Result]


def report(found: dict[Title, Results], pool: int) -> str:
    """Return the whole report in Markdown."""
    lines = [*_heading(pool), *_summary(found)]
    for title, results in found.items():
        lines += section(title, results)
    return "\n".join(lines) + "\n"


def _heading(pool: int) -> list[str]:
    return [
        "# Evidence for tokens",
        "",
        f"llama-index-ext-ctxaug {__version__}, llama-index-core {core_version}, Python "
        f"{platform.python_version()}, numpy {np.__version__}, pools of {pool} hits.",
        "",
    ]


def _summary(found: dict[Title, Results]) -> list[str]:
    """Yield each way on each data set, with its best retriever."""
    best: dict[str, Title] = {}
    for title, results in found.items():
        known = best.get(title.corpus)
        if known is None or _mean(results["top-k"]) > _mean(found[known]["top-k"]):
            best[title.corpus] = title
    names = dict.fromkeys(name for title in best.values() for name in found[title])
    heads = [f"{title.corpus}, {title.retriever}" for title in best.values()]
    lines = [
        "## All ways",
        "",
        f"Mean share of the evidence covered, over {', '.join(f'{budget:,}' for budget in BUDGETS)} tokens; "
        "each data set with the retriever that finds most for plain top-k. The best of each column is bold.",
        "",
        "| way | " + " | ".join(heads) + " | mean |",
        "|---" * (len(heads) + 2) + "|",
    ]
    table = {
        name: [_mean(found[t][name]) if name in found[t] else np.nan for t in best.values()] for name in names
    }
    for row in table.values():
        row.append(float(np.mean(row)))
    highest = np.nanmax(np.array(list(table.values())), axis=0)
    for name, row in table.items():
        cells = [
            "-" if np.isnan(x) else f"**{x:.3f}**" if x == top else f"{x:.3f}"
            for x, top in zip(row, highest, strict=True)
        ]
        few = any(name in found[t] and len(found[t][name].share) < t.questions for t in best.values())
        lines.append(_row(f"{name} (fewer questions)" if few else name, cells))
    return [*lines, ""]


def _mean(result: Result) -> float:
    return float(np.mean(result.share))


def section(title: Title, results: Results) -> list[str]:
    """Return the tables of one data set and retriever."""
    lines = [f"## {title}", ""]
    lines += [
        f"Ways that rerank or rescore do it by {title.scorer}.",
        "",
        "Mean share of the evidence covered / share of questions covered wholly, in so many tokens:",
        "",
        _row("way", [f"{budget:,}" for budget in BUDGETS]),
        "|---" * (len(BUDGETS) + 1) + "|",
    ]
    for name, result in results.items():
        share = np.array(result.share)
        cells = [f"{a:.3f}/{b:.3f}" for a, b in zip(share.mean(0), (share > 0.9999).mean(0), strict=True)]
        lines.append(_row(_label(name, result, title), cells))
    return [*lines, "", *_costs(title, results), "", *_differences(title, results), ""]


def _row(name: str, cells: Sequence[str]) -> str:
    return f"| {name} | " + " | ".join(cells) + " |"


def _label(name: str, result: Result, title: Title) -> str:
    """Return the name of a way, with the number of questions if it is smaller."""
    count = len(result.share)
    return name if count == title.questions else f"{name} ({count} questions)"


def _costs(title: Title, results: Results) -> list[str]:
    """Return the other figures at the middle budget."""
    middle = BUDGETS.index(MIDDLE)
    lines = [
        f"At {MIDDLE:,} tokens; keys read and CPU time for the whole pool, embedding not counted:",
        "",
        "| way | evidence in one place | in several | precision | repeated text | keys read | CPU ms |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, result in results.items():
        share, several = np.array(result.share)[:, middle], np.array(result.parts) > 1
        cells = [f"{share[mask].mean():.3f}" if mask.any() else "-" for mask in (~several, several)]
        cells += [f"{np.array(kind)[:, middle].mean():.3f}" for kind in (result.precision, result.repeated)]
        cells += [f"{np.mean(result.reads):.0f}", f"{1e3 * np.median(result.seconds):.1f}"]
        lines.append(_row(_label(name, result, title), cells))
    return lines


def _differences(title: Title, results: Results) -> list[str]:
    """Return how much more RelevantSegments covers: paired differences with bootstrap intervals."""
    if OURS not in results:
        return []
    ours = dict(zip(results[OURS].places, np.array(results[OURS].share), strict=True))
    lines = [
        f"{OURS} covers more (paired difference of the mean, 95 % bootstrap interval):",
        "",
        _row("than", [f"{budget:,}" for budget in BUDGETS]),
        "|---" * (len(BUDGETS) + 1) + "|",
    ]
    for name, result in results.items():
        if name != OURS:
            difference = np.array([ours[place] for place in result.places]) - np.array(result.share)
            draws = np.random.default_rng(0).integers(0, len(difference), (2000, len(difference)))
            low, high = np.percentile(difference[draws].mean(1), [2.5, 97.5], axis=0)
            cells = [
                f"{mean:+.3f} ({a:+.3f} to {b:+.3f})"
                for mean, a, b in zip(difference.mean(0), low, high, strict=True)
            ]
            lines.append(_row(_label(name, result, title), cells))
    return lines


def draw(found: dict[Title, Results], path: Path) -> None:
    """Draw evidence covered against tokens, a panel for each data set and retriever."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot

    columns = min(3, len(found))
    rows = -(-len(found) // columns)
    size = (4.6 * columns + 0.4, 3.6 * rows + 1.2)
    figure, axes = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for axis, (title, results) in zip(axes.flat, found.items(), strict=False):
        for name, (color, line) in CHARTED.items():
            if name in results:
                axis.plot(
                    BUDGETS,
                    np.array(results[name].share).mean(0),
                    label=name,
                    color=color,
                    linestyle=line,
                    marker="o",
                    markersize=3.5,
                    linewidth=2.6 if name == OURS else 1.4,
                    zorder=3 if name == OURS else 2,
                )
        axis.set_xscale("log")
        axis.set_xticks(BUDGETS, [f"{budget:,}" for budget in BUDGETS])
        axis.minorticks_off()
        axis.set(title=f"{title.corpus}, {title.retriever}", xlabel="tokens of the context")
        axis.grid(alpha=0.3)
    for axis in list(axes.flat)[len(found) :]:
        axis.remove()
    for axis in axes[:, 0]:
        axis.set_ylabel("mean share of evidence covered")
    handles, labels = axes.flat[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=columns, frameon=False)
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
