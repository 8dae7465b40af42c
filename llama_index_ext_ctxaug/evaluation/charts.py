"""Geometry of the report's charts; the template `charts.html` draws them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from llama_index_ext_ctxaug.evaluation.choice import Interval

LEFT, RIGHT, TOP, BOTTOM = 58, 436, 12, 256
"""Edges of a scatter's plot in units of its view box."""


@dataclass(frozen=True)
class Axis:
    """An axis between the positions of its first and its last tick; ticks are values, ascending."""

    ticks: Sequence[float]
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the position of a value."""
        low, high = self.ticks[0], self.ticks[-1]
        return round(self.start + (self.end - self.start) * (value - low) / (high - low), 1)


class Point(NamedTuple):
    """A measured point, and the run it belongs to."""

    x: float
    y: float
    label: str


class Scatter(NamedTuple):
    """The points of each system, ascending, with the titles of the axes."""

    series: Mapping[str, Sequence[Point]]
    x_name: str
    y_name: str
    x: Axis
    y: Axis


def scatter(series: Mapping[str, Sequence[Point]], x_name: str, y_name: str) -> Scatter | None:
    """Lay out a scatter; None if there is no point."""
    points = [point for own in series.values() for point in own]
    if not points:
        return None
    x = Axis(_ticks([0.0, *(point.x for point in points)]), LEFT, RIGHT)
    y = Axis(_ticks([point.y for point in points]), BOTTOM, TOP)
    return Scatter({name: sorted(own) for name, own in series.items()}, x_name, y_name, x, y)


def interval_axis(intervals: Mapping[str, Interval], start: float, end: float) -> Axis:
    """Return an axis that holds all intervals and zero, with a margin."""
    ends = [0.0, *(i.low for i in intervals.values()), *(i.high for i in intervals.values())]
    margin = 0.05 * ((max(ends) - min(ends)) or 1.0)
    return Axis([min(ends) - margin, max(ends) + margin], start, end)


def _ticks(values: Sequence[float]) -> list[float]:
    """Return four to eight round numbers around the values."""
    low, high = min(values), max(values)
    if high <= low:
        low, high = (0.0, 1.0) if low == 0 else (low - 0.1, low + 0.1)
    raw = (high - low) / 5
    power = 10 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 5, 10) if power * factor >= raw)
    first, last = math.floor(low / step), math.ceil(high / step - 1e-9)
    return [round(step * count, 12) for count in range(first, last + 1)]
