"""Geometry of the report's charts; the template `charts.html` draws them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_index_ext_ctxaug.evaluation.choice import Interval

LEFT, RIGHT, TOP, BOTTOM = 58, 436, 12, 256
"""Edges of a scatter's plot in units of its view box."""


@dataclass(frozen=True)
class Axis:
    """An axis with round tick values.

    Attributes:
        ticks: values of the ticks, ascending.
        start: position of the first tick.
        end: position of the last tick.
    """

    ticks: Sequence[float]
    start: float
    end: float

    def at(self, value: float) -> float:
        """Return the position of a value."""
        low, high = self.ticks[0], self.ticks[-1]
        return round(self.start + (self.end - self.start) * (value - low) / (high - low), 1)


@dataclass(frozen=True)
class Point:
    """A measured point.

    Attributes:
        x: value on the horizontal axis.
        y: value on the vertical axis.
        label: the run it belongs to.
    """

    x: float
    y: float
    label: str


@dataclass(frozen=True)
class Scatter:
    """Points of systems, those of one system joined from left to right.

    Attributes:
        series: the points of each system, ascending, by its name.
        x_name: title of the horizontal axis.
        y_name: title of the vertical axis.
        x: horizontal axis.
        y: vertical axis.
    """

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
    ordered = {name: sorted(own, key=lambda point: (point.x, point.y)) for name, own in series.items()}
    return Scatter(ordered, x_name, y_name, x, y)


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
