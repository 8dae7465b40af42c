"""Charts as inline SVG: each system has its own shape and its own line, so color says nothing alone."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_index_ext_ctxaug.evaluation.choice import Interval
from llama_index_ext_ctxaug.evaluation.escaping import for_html
from llama_index_ext_ctxaug.evaluation.tables import number

_WIDTH, _HEIGHT = 460, 300
_LEFT, _RIGHT, _TOP, _BOTTOM = 58, 24, 12, 44
_DASHES = ("", "6 3", "2 3", "9 3 2 3", "1 4")


@dataclass(frozen=True)
class Series:
    """The points of one system.

    Attributes:
        name: the system.
        points: x and y, each with what it is called.
    """

    name: str
    points: Sequence[tuple[float, float, str]]


def marker(index: int, x: float, y: float) -> str:
    """A shape for the system with this number."""
    size = 5.0
    corners = (0, 4, 3, 4, 3, 5, 6, 8)[index % 8]
    style = f'class="mark s{index % 6}"'
    if corners == 0:
        return f'<circle {style} cx="{x:.1f}" cy="{y:.1f}" r="{size}"/>'
    turn = {1: 0.25, 2: 0.5, 3: 0.0, 4: 0.0}.get(index % 8, 0.5)
    angles = [2 * math.pi * (corner + turn) / corners + math.pi / 2 for corner in range(corners)]
    if index % 8 == 2:  # a triangle on its side
        angles = [angle - math.pi / 6 for angle in angles]
    points = " ".join(
        f"{x + size * 1.2 * math.cos(a):.1f},{y - size * 1.2 * math.sin(a):.1f}" for a in angles
    )
    return f'<polygon {style} points="{points}"/>'


def scatter(series: Sequence[Series], x_name: str, y_name: str) -> str:
    """Points of systems, those of one system joined from left to right."""
    points = [point for one in series for point in one.points]
    if not points:
        return "<p>Nothing was measured for this chart.</p>"
    x_axis, y_axis = _ticks([x for x, _, _ in points], from_zero=True), _ticks([y for _, y, _ in points])

    def x_of(value: float) -> float:
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (value - x_axis[0]) / (x_axis[-1] - x_axis[0])

    def y_of(value: float) -> float:
        return _HEIGHT - _BOTTOM - (_HEIGHT - _TOP - _BOTTOM) * (value - y_axis[0]) / (y_axis[-1] - y_axis[0])

    parts = [
        f'<line class="grid" x1="{_LEFT}" x2="{_WIDTH - _RIGHT}" y1="{y_of(t):.1f}" y2="{y_of(t):.1f}"/>'
        f'<text class="tick" x="{_LEFT - 6}" y="{y_of(t) + 4:.1f}" text-anchor="end">{t:.4g}</text>'
        for t in y_axis
    ]
    parts += [
        f'<text class="tick" x="{x_of(t):.1f}" y="{_HEIGHT - _BOTTOM + 16}" '
        f'text-anchor="middle">{t:.4g}</text>'
        for t in x_axis
    ]
    for index, one in enumerate(series):
        ordered = sorted(one.points)
        if len(ordered) > 1:
            path = " ".join(f"{x_of(x):.1f},{y_of(y):.1f}" for x, y, _ in ordered)
            dash = _DASHES[index % len(_DASHES)]
            parts.append(f'<polyline class="line s{index % 6}" stroke-dasharray="{dash}" points="{path}"/>')
        for x, y, name in ordered:
            title = for_html(f"{one.name}, {name}: {x_name} {number(x)}, {y_name} {number(y)}")
            parts.append(f"<g><title>{title}</title>{marker(index, x_of(x), y_of(y))}</g>")
    middle = (_LEFT + _WIDTH - _RIGHT) / 2
    parts.append(
        f'<text class="name" x="{middle}" y="{_HEIGHT - 8}" text-anchor="middle">{for_html(x_name)}</text>'
    )
    parts.append(
        f'<text class="name" transform="rotate(-90)" x="{-(_HEIGHT - _BOTTOM) / 2}" y="14" '
        f'text-anchor="middle">{for_html(y_name)}</text>'
    )
    label = for_html(f"{y_name} against {x_name}; the table above has the numbers")
    return (
        f'<svg class="chart" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" '
        f'aria-label="{label}">{"".join(parts)}</svg>'
    )


def intervals(values: Mapping[str, Interval], indexes: Mapping[str, int]) -> str:
    """For each system its mean difference to the baseline, with the interval; the line is no difference."""
    if not values:
        return ""
    row, left, right = 30, 190, 12
    ends = [0.0, *(v.low for v in values.values()), *(v.high for v in values.values())]
    low, high = min(ends), max(ends)
    span = (high - low) or 1.0
    low, high = low - span * 0.05, high + span * 0.05

    def x_of(value: float) -> float:
        return left + (_WIDTH * 1.3 - left - right) * (value - low) / (high - low)

    height = row * len(values) + 24
    parts = [f'<line class="axis" x1="{x_of(0):.1f}" x2="{x_of(0):.1f}" y1="0" y2="{height - 20}"/>']
    parts.append(
        f'<text class="tick" x="{x_of(0):.1f}" y="{height - 5}" text-anchor="middle">no difference</text>'
    )
    for place, (name, value) in enumerate(values.items()):
        y = place * row + row / 2
        title = f"{name}: {value.mean:+.3f}, 95% interval {value.low:+.3f} to {value.high:+.3f}"
        shown = for_html(name if len(name) <= 26 else name[:25] + "…")
        parts.append(
            f'<g><title>{for_html(title)}</title><text class="label" x="{left - 10}" y="{y + 4:.1f}" '
            f'text-anchor="end">{shown}</text><line class="axis" x1="{x_of(value.low):.1f}" '
            f'x2="{x_of(value.high):.1f}" y1="{y:.1f}" y2="{y:.1f}"/>'
            f"{marker(indexes[name], x_of(value.mean), y)}</g>"
        )
    return (
        f'<svg class="chart wide" viewBox="0 0 {_WIDTH * 1.3:.0f} {height}" role="img" '
        f'aria-label="differences to the baseline">{"".join(parts)}</svg>'
    )


def bars(differences: Sequence[float]) -> str:
    """A bar for each question, the largest gain first: up is better than the baseline, down is worse."""
    values = sorted(differences, reverse=True)
    most = max((abs(value) for value in values), default=0.0)
    if most == 0:
        return ""
    width = _WIDTH / len(values)
    boxes = []
    for place, value in enumerate(values):
        height = 40 * abs(value) / most
        top = 42 - height if value > 0 else 42
        kind = "gain" if value > 0 else "loss"
        boxes.append(
            f'<rect class="{kind}" x="{place * width:.2f}" y="{top:.1f}" '
            f'width="{max(width - 0.5, 0.5):.2f}" height="{height:.1f}"/>'
        )
    line = f'<line class="axis" x1="0" x2="{_WIDTH}" y1="42" y2="42"/>'
    return (
        f'<svg class="chart bars" viewBox="0 0 {_WIDTH} 84" role="img" '
        f'aria-label="gains and losses by question">{"".join(boxes)}{line}</svg>'
    )


def _ticks(values: Sequence[float], from_zero: bool = False) -> list[float]:
    """Four to eight round numbers around the values."""
    low, high = (0.0 if from_zero else min(values)), max(values)
    if high <= low:
        low, high = (low - 0.1, low + 0.1) if not from_zero else (0.0, 1.0)
    raw = (high - low) / 5
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
    return [round(step * count, 12) for count in range(first, last + 1)]
