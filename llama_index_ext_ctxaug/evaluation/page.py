"""Reports and maps as one self-contained page: no script, nothing loaded from anywhere."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from typing import TYPE_CHECKING

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.evaluation.charts import Series, bars, intervals, marker, scatter
from llama_index_ext_ctxaug.evaluation.context_map import Systems, map_html
from llama_index_ext_ctxaug.evaluation.escaping import for_html
from llama_index_ext_ctxaug.evaluation.rows import Row
from llama_index_ext_ctxaug.evaluation.systems import BASELINE
from llama_index_ext_ctxaug.evaluation.tables import number, shown

if TYPE_CHECKING:
    from llama_index_ext_ctxaug.evaluation.report import Report

# The policy keeps a page harmless even where text of a document would get past the escaping.
_HEAD = """<!DOCTYPE html>
<html lang="en"><head><meta charset="utf-8">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<meta name="viewport" content="width=device-width, initial-scale=1"><title>{title}</title>
<style>
:root {{ color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --faint: #d4d4d4; --soft: #f3f3f3;
  --c0: #333; --c1: #0067b0; --c2: #b34700; --c3: #00785a; --c4: #8a3a86; --c5: #7a6200; }}
@media (prefers-color-scheme: dark) {{ :root {{ --ink: #ececec; --paper: #16181b; --faint: #4a4f55;
  --soft: #24272b; --c0: #ddd; --c1: #6cb8f5; --c2: #ff9d5c; --c3: #4fd0aa; --c4: #e39be0;
  --c5: #dcc04a; }} }}
body {{ margin: 2rem auto; max-width: 70rem; padding: 0 1rem; color: var(--ink); background: var(--paper);
  font: 16px/1.5 system-ui, sans-serif; }}
h1 {{ font-size: 1.7rem; }} h2 {{ margin-top: 2.5rem; }} h4 {{ margin: 1rem 0 .3rem; }}
.wrap {{ overflow-x: auto; }}
table {{ border-collapse: collapse; font-size: .87rem; }}
th, td {{ padding: .3rem .55rem; border-bottom: 1px solid var(--faint); text-align: left; }}
td.n {{ text-align: right; font-variant-numeric: tabular-nums; white-space: nowrap; }}
tr.best td {{ font-weight: 700; background: var(--soft); }}
.charts {{ display: flex; flex-wrap: wrap; gap: 1rem; }}
figure {{ flex: 1 1 24rem; max-width: 32rem; margin: 0; }} figcaption {{ font-size: .85rem; }}
td.wide {{ white-space: nowrap; }}
svg {{ font: 12px system-ui, sans-serif; }}
svg text {{ fill: var(--ink); }}
svg.chart {{ width: 100%; max-width: 32rem; }} svg.wide {{ max-width: 40rem; }}
svg.strip {{ width: 100%; }}
.grid {{ stroke: var(--faint); }} .axis {{ stroke: var(--ink); }}
.line {{ fill: none; stroke-width: 1.6; }} .mark {{ stroke: var(--paper); }}
.mark.s0 {{ fill: var(--c0); }} .mark.s1 {{ fill: var(--c1); }} .mark.s2 {{ fill: var(--c2); }}
.mark.s3 {{ fill: var(--c3); }} .mark.s4 {{ fill: var(--c4); }} .mark.s5 {{ fill: var(--c5); }}
.line.s0 {{ stroke: var(--c0); }} .line.s1 {{ stroke: var(--c1); }} .line.s2 {{ stroke: var(--c2); }}
.line.s3 {{ stroke: var(--c3); }} .line.s4 {{ stroke: var(--c4); }} .line.s5 {{ stroke: var(--c5); }}
ul.legend {{ list-style: none; padding: 0; display: flex; flex-wrap: wrap; gap: .3rem 1.4rem; }}
.legend svg {{ width: 18px; height: 18px; vertical-align: middle; margin-right: .3rem; }}
.legend svg.key {{ width: 34px; }}
rect {{ stroke: var(--ink); }}
rect.hit {{ fill: var(--c0); }} svg rect.hit + text.letter {{ fill: var(--paper); }}
rect.neighbor {{ fill: var(--paper); stroke-dasharray: 4 2; }}
rect.parent {{ fill: var(--soft); stroke-width: 3; }}
rect.passage, rect.window {{ fill: var(--soft); stroke-dasharray: 1 3; stroke-width: 2; }}
rect.gain {{ fill: var(--c3); stroke: none; }} rect.loss {{ fill: var(--paper); stroke: var(--c2); }}
.letter {{ text-anchor: middle; font-weight: 700; }}
.tag {{ border: 1px solid var(--ink); border-radius: 3px; padding: 0 .3rem; }}
.tag.hit {{ background: var(--c0); color: var(--paper); }} .tag.neighbor {{ border-style: dashed; }}
.tag.parent {{ border-width: 3px; }} .tag.window, .tag.passage {{ border-style: dotted; }}
.from {{ margin: 0; font-size: .85rem; }}
pre {{ white-space: pre-wrap; overflow-wrap: anywhere; background: var(--soft); padding: .5rem;
  margin: .3rem 0 1rem; font-size: .82rem; }}
details {{ margin: .4rem 0; }} summary {{ cursor: pointer; }}
details.question {{ border: 1px solid var(--faint); border-radius: 4px; padding: .5rem .8rem; }}
@media print {{
  :root {{ color-scheme: light; --ink: #000; --paper: #fff; --faint: #bbb; --soft: #eee; --c0: #333;
    --c1: #0067b0; --c2: #b34700; --c3: #00785a; --c4: #8a3a86; --c5: #7a6200; }}
  body {{ max-width: none; margin: 0; font-size: 10pt; }}
  .wrap {{ overflow: visible; }} table {{ font-size: 6.5pt; }} th, td {{ padding: .15rem .3rem; }}
  td.wide {{ white-space: normal; }} svg, tr {{ break-inside: avoid; }}
  * {{ print-color-adjust: exact; -webkit-print-color-adjust: exact; }}
  details::details-content {{ content-visibility: visible; height: auto; }} }}
</style></head><body>
"""

_ROLES = {
    "hit": "found by the retriever",
    "neighbor": "added beside a hit",
    "parent": "hits merged into the text above them",
    "window": "a window or passage whose parts are unknown",
}


def report_page(report: Report) -> str:
    """The page of a report."""
    parts = [_HEAD.format(title="Comparison of augmenters"), "<h1>Comparison of augmenters</h1>"]
    parts += [_choice(report), _table(report), _charts(report), _gains(report), _problems(report)]
    parts += ["<h2>Context map</h2>", _key()]
    parts += list(_questions(report))
    return "\n".join([*(part for part in parts if part), "</body></html>\n"])


def map_page(systems: Systems) -> str:
    """The page of a single map."""
    head = _HEAD.format(title="Context map")
    return "\n".join([head, "<h1>Context map</h1>", _key(), map_html(systems), "</body></html>\n"])


def in_notebook(page: str) -> str:
    """A page inside a frame, so that its style and the notebook's leave each other alone."""
    return (
        f'<iframe sandbox="" srcdoc="{escape(page, quote=True)}" '
        'style="width:100%;height:36rem;border:0;background:Canvas"></iframe>'
    )


def _choice(report: Report) -> str:
    try:
        reasons = report.choice.reasons
    except ConfigurationError as error:
        return f"<p>No choice: {for_html(str(error))}</p>"
    metrics = for_html(", ".join(report.choice_metrics))
    items = "".join(f"<li>{for_html(reason)}</li>" for reason in reasons)
    return f"<p><strong>Best: {for_html(report.choice.winner)}</strong> (by {metrics})</p><ul>{items}</ul>"


def _table(report: Report) -> str:
    records = report.summary()
    columns = report.columns(records, "settings")
    head = "".join(f"<th>{for_html(column)}</th>" for column in columns)
    rows = []
    for record in records:
        cells = "".join(_cell(record[column]) for column in columns)
        rows.append(f"<tr{' class=best' if record['is_best'] else ''}>{cells}</tr>")
    return f'<h2>Summary</h2><div class="wrap"><table><tr>{head}</tr>{"".join(rows)}</table></div>'


def _cell(value: object) -> str:
    kind = ' class="wide"' if isinstance(value, str | bool) else ' class="n"'
    return f"<td{kind}>{for_html(shown(value))}</td>"


def _charts(report: Report) -> str:
    names = report.choice_metrics
    quality = "mean of " + ", ".join(names) if len(names) > 1 else "".join(names)
    tokens, seconds = [], []
    for system in report.systems:
        records = [record for record in report.summary() if record["system"] == system.name]
        tokens.append(Series(system.name, _points(records, "tokens", names)))
        seconds.append(Series(system.name, _points(records[:1], "seconds", names)))
    legend = "".join(
        f'<li><svg viewBox="0 0 18 18" aria-hidden="true">{marker(index, 9, 9)}</svg>'
        f"{for_html(system.name)}</li>"
        for index, system in enumerate(report.systems)
    )
    return (
        f'<h2>Quality against cost</h2><ul class="legend">{legend}</ul><div class="charts">'
        f"<figure>{scatter(tokens, 'tokens', quality)}<figcaption>Points of one system are joined: "
        "without a limit, and within each budget.</figcaption></figure>"
        f"<figure>{scatter(seconds, 'seconds for a question', quality)}</figure></div>"
    )


def _points(
    records: Sequence[dict[str, object]], x_name: str, metrics: Sequence[str]
) -> list[tuple[float, float, str]]:
    points = []
    for record in records:
        x, values = record.get(x_name), [record[name] for name in metrics]
        numbers = [value for value in values if isinstance(value, int | float)]
        if isinstance(x, int | float) and numbers:
            limit = record["budget"]
            name = "no limit" if limit is None else f"within {limit} tokens"
            points.append((float(x), sum(numbers) / len(numbers), name))
    return points


def _gains(report: Report) -> str:
    try:
        against = report.choice.against_baseline
    except ConfigurationError:
        return ""
    indexes = {system.name: index for index, system in enumerate(report.systems)}
    parts = [f"<h2>Gains and losses against {BASELINE}</h2>", intervals(against, indexes)]
    numbers = _numbers(report.rows)
    for name in against:
        differences = report.differences(name)
        values = list(differences.values())
        better, worse = sum(v > 0 for v in values), sum(v < 0 for v in values)
        equal = len(values) - better - worse
        parts.append(f"<h4>{for_html(name)}: {better} better, {worse} worse, {equal} equal</h4>")
        parts.append(bars(values))
        ordered = sorted(differences, key=lambda id_: (-abs(differences[id_]), id_))
        links = [
            f'<a href="#q{numbers[id_]}"><bdi>{for_html(id_)}</bdi></a> {differences[id_]:+.2f}'
            for id_ in ordered[:12]
            if differences[id_]
        ]
        parts.append(f"<p>Largest: {', '.join(links)}</p>" if links else "")
    return "\n".join(parts)


def _numbers(rows: Sequence[Row]) -> dict[str, int]:
    """A number for each question, since its id may be anything."""
    return {id_: number_ for number_, id_ in enumerate(dict.fromkeys(row.question_id for row in rows))}


def _problems(report: Report) -> str:
    if not report.problems:
        return ""
    items = "".join(f"<li><bdi>{for_html(problem)}</bdi></li>" for problem in report.problems)
    return f"<h2>Problems</h2><ul>{items}</ul>"


def _key() -> str:
    items = [
        '<li><svg class="key" viewBox="0 0 34 18" aria-hidden="true">'
        f'<rect class="{role}" x="2" y="2" width="30" height="14" rx="2"/>'
        f'<text class="letter" x="17" y="13">{role[0].upper()}</text></svg>'
        f"{role}: {meaning}</li>"
        for role, meaning in _ROLES.items()
    ]
    return f'<ul class="legend">{"".join(items)}</ul>'


def _questions(report: Report) -> Iterator[str]:
    groups: dict[str, list[Row]] = {}
    for row in report.rows:
        if row.budget is None:
            groups.setdefault(row.question_id, []).append(row)
    numbers = _numbers(report.rows)
    names = report.choice_metrics
    for id_, rows in groups.items():
        scores = "; ".join(
            f"{row.system} " + ", ".join(number(row.scores.get(name)) for name in names) for row in rows
        )
        systems = {row.system: row.blocks for row in rows}
        yield (
            f'<details class="question" id="q{numbers[id_]}"><summary><bdi>{for_html(rows[0].question)}</bdi>'
            f'<br><span class="from">{for_html(", ".join(names))}: {for_html(scores)}</span></summary>'
            f"{map_html(systems)}</details>"
        )
