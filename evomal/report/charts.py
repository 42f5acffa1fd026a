"""Charts as SVG for pages: small, in the colours of the page, with points that are links.

Figures for print are drawn by matplotlib (`evomal.figures`), which takes a second each. A page that follows a search
draws its charts again with every generation, needs links in them, and may not use style attributes.
"""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
from markupsafe import Markup

from evomal.figures.style import axis_limits, drawable
from evomal.report.pages import own_markup
from evomal.text import escape_html, shorten

WIDTH, HEIGHT = 460.0, 290.0
_LEFT, _RIGHT, _TOP, _BOTTOM = 58.0, 18.0, 14.0, 44.0
_LABEL_SPACE, _CHARACTER = 24.0, 7.0  # for the label of the y axis, and for each character of a tick
_LONGEST_LABEL, _LONGEST_HINT = 60, 300  # characters
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
_MOST_TICKS = 6
_ROUNDING = 1e-6  # of an axis

Point = tuple[float, float]


@dataclass(frozen=True)
class ShownChart:
    """A chart with its title and legend."""

    title: str
    svg: Markup
    legend: Sequence[tuple[str, str, str]] = ()
    note: str = ""


@dataclass(frozen=True)
class LinkedPoint:
    """A point that leads to a page; the hint is shown when it is pointed at or focused."""

    x: float
    y: float
    address: str | None
    """None for a point that leads nowhere and only has its hint."""
    hint: str


@dataclass(frozen=True)
class Axis:
    """What an axis shows and between which values."""

    label: str
    low: float
    high: float
    whole: bool = False
    """Whether ticks are at whole numbers only."""
    scale: float = 1.0
    """What the values at ticks are multiplied by, as for percent."""

    @classmethod
    def over(
        cls, label: str, values: Iterable[float], *, inner: tuple[float, float] = (0.0, 1.0), scale: float = 1.0
    ) -> "Axis":
        """An axis that holds the finite values, or their inner quantiles if the others lie far out."""
        low, high = axis_limits(list(values), inner)
        return cls(label, low, high, scale=scale)

    def ticks(self) -> list[tuple[float, str]]:
        """Positions and texts of about five ticks."""
        low, high = self.low * self.scale, self.high * self.scale
        wide = (high - low) / (_MOST_TICKS - 1)
        if not (math.isfinite(wide) and wide > 0):
            return []
        power = 10.0 ** math.floor(math.log10(wide))
        step = next(step * power for step in _STEPS if step * power >= wide * (1 - 1e-9))
        if self.whole:
            step = max(1.0, math.ceil(step))
        first = math.ceil(low / step - 1e-9)
        found = [
            number * step for number in range(first, first + _MOST_TICKS + 2) if number * step <= high + step * 1e-9
        ]
        return [(value / self.scale, f"{value:.6g}".replace("-", "−")) for value in found]


@dataclass
class Chart:
    """A drawing with two axes, to which methods add lines and points; `markup` returns it as SVG."""

    description: str
    """What a screen reader says."""
    x: Axis
    y: Axis
    height: float = HEIGHT
    rows: Sequence[str] = ()
    """Names at y = 0, 1, …, from the top, instead of numbers."""
    left: float = _LEFT
    legend: list[tuple[str, str, str]] = field(default_factory=list)
    """Kind (`line`, `dashed`, `dotted`, `dot`, `area`, `band`), colour and text."""
    is_cut: bool = False
    """Whether something that lies beyond the axes was drawn at their edge."""
    _parts: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        longest = 0 if self.rows else max((len(text) for _, text in self.y.ticks()), default=0)
        self.left = max(self.left, _LABEL_SPACE + _CHARACTER * longest)

    def line(
        self, points: Sequence[Point], colour: str, *, kind: str = "line", step: bool = False, name: str = ""
    ) -> None:
        """A line through the points; it is interrupted where one is not finite."""
        pieces: list[list[Point]] = [[]]
        for x, y in points:
            if math.isfinite(x) and math.isfinite(y):
                if step and pieces[-1]:
                    pieces[-1].append((x, pieces[-1][-1][1]))
                pieces[-1].append((x, y))
            elif pieces[-1]:
                pieces.append([])
        for piece in pieces:
            if piece:
                self._parts.append(
                    f'<polyline points="{self._points(piece)}" fill="none" stroke="var(--{colour})" class="{kind}"/>'
                )
        if name:
            self.legend.append((kind, colour, name))

    def level(self, y: float, colour: str, kind: str, name: str = "") -> None:
        """A line from one side to the other; only its name and value if it lies beyond the axis."""
        if name and not min(self.y.low, self.y.high) <= y <= max(self.y.low, self.y.high):
            self.legend.append((kind, colour, f"{name}: {y * self.y.scale:.4g}, beyond the axis"))
            return
        self.line([(self.x.low, y), (self.x.high, y)], colour, kind=kind, name=name)

    def band(self, low: float, high: float, colour: str, name: str = "") -> None:
        """A strip between two heights; only its name if it lies beyond the axis."""
        if name and (high < self.y.low or low > self.y.high):
            self.legend.append(("band", colour, f"{name}, beyond the axis"))
            return
        top, bottom = self._down(high), self._down(low)
        box = f'x="{self.left:g}" y="{top:.1f}" width="{self._inner_width:.1f}" height="{max(bottom - top, 0):.1f}"'
        self._parts.append(f'<rect {box} fill="var(--{colour})" class="band"/>')
        if name:
            self.legend.append(("band", colour, name))

    def bar(self, left: float, right: float, low: float, high: float, colour: str) -> None:
        """A filled box."""
        across, down = self._across(left), self._down(high)
        wide, tall = self._across(right) - across, self._down(low) - down
        if tall > 0 and wide > 0:
            self._parts.append(
                f'<rect x="{across:.2f}" y="{down:.2f}" width="{wide:.2f}" height="{tall:.2f}" fill="var(--{colour})"/>'
            )

    def dots(self, points: Iterable[Point], colour: str, *, radius: float = 2.5, name: str = "") -> None:
        """Points without links, as one path."""
        circle = (
            f"m-{radius:g},0a{radius:g},{radius:g} 0 1,0 {2 * radius:g},0a{radius:g},{radius:g} 0 1,0 -{2 * radius:g},0"
        )
        places = "".join(f"M{self._across(x):.1f},{self._down(y):.1f}{circle}" for x, y in points if _finite(x, y))
        if places:
            self._parts.append(f'<path d="{places}" fill="var(--{colour})" class="dots"/>')
        if name:
            self.legend.append(("dot", colour, name))

    def links(self, points: Iterable[LinkedPoint], colour: str, *, radius: float = 4.5, name: str = "") -> None:
        """Points that can be pointed at, focused and opened."""
        for point in points:
            if not _finite(point.x, point.y):
                continue
            hint = escape_html(shorten(point.hint, _LONGEST_HINT))
            place = f'cx="{self._across(point.x):.1f}" cy="{self._down(point.y):.1f}"'
            circles = (
                f'<circle {place} r="{2.2 * radius:g}" class="reach"/>'
                f'<circle {place} r="{radius:g}" fill="var(--{colour})" class="point"/><title>{hint}</title>'
            )
            if point.address is None:
                self._parts.append(f"<g>{circles}</g>")
            else:
                address = f'href="{escape_html(point.address)}" data-hint="{hint}" aria-label="{hint}"'
                self._parts.append(f"<a {address}>{circles}</a>")
        if name:
            self.legend.append(("dot", colour, name))

    def shown(self, title: str, note: str = "") -> ShownChart:
        """The chart as a page shows it."""
        svg = self.markup()
        cut = "What lies beyond the axes is drawn at their edge." if self.is_cut else ""
        return ShownChart(title, svg, tuple(self.legend), f"{note} {cut}".strip())

    def markup(self) -> Markup:
        """The drawing as an SVG element."""
        box = f'viewBox="0 0 {WIDTH:g} {self.height:g}"'
        label = escape_html(shorten(self.description, _LONGEST_HINT))
        role = "group" if any("<a " in part for part in self._parts) else "img"  # an image hides what is inside it
        content = "".join((*self._axes(), *self._parts))
        return own_markup(f'<svg class="chart" role="{role}" aria-label="{label}" {box}>{content}</svg>')

    @property
    def _inner_width(self) -> float:
        return WIDTH - self.left - _RIGHT

    def _across(self, x: float) -> float:
        return self.left + self._share(x, self.x) * self._inner_width

    def _down(self, y: float) -> float:
        return _TOP + (1 - self._share(y, self.y)) * (self.height - _TOP - _BOTTOM)

    def _share(self, value: float, axis: Axis) -> float:
        """Where a value lies between the ends of an axis, from 0 to 1; what lies beyond is drawn at the edge."""
        found = float(drawable([value])[0])
        share = (found - axis.low) / (axis.high - axis.low) if axis.high != axis.low else 0.5
        self.is_cut |= not -_ROUNDING <= share <= 1 + _ROUNDING
        return float(np.clip(share, 0.0, 1.0))

    def _points(self, points: Iterable[Point]) -> str:
        return " ".join(f"{self._across(x):.1f},{self._down(y):.1f}" for x, y in points)

    def _axes(self) -> Iterable[str]:
        floor = self.height - _BOTTOM
        yield f'<path d="M{self.left:g},{_TOP:g}V{floor:g}H{WIDTH - _RIGHT:g}" class="frame"/>'
        for value, text in self.x.ticks():
            at = self._across(value)
            yield f'<path d="M{at:.1f},{floor:g}v4" class="frame"/>'
            yield f'<text x="{at:.1f}" y="{floor + 17:g}" text-anchor="middle">{text}</text>'
        ticks = [(float(place), name) for place, name in enumerate(self.rows)] or self.y.ticks()
        for value, text in ticks:
            at = self._down(value)
            yield f'<path d="M{self.left:g},{at:.1f}H{WIDTH - _RIGHT:g}" class="grid"/>'
            shown = escape_html(shorten(text, max(4, int(self.left / 8))))
            yield f'<text x="{self.left - 6:g}" y="{at + 4:.1f}" text-anchor="end">{shown}</text>'
        label = escape_html(shorten(self.x.label, _LONGEST_LABEL))
        middle = self.left + self._inner_width / 2
        yield f'<text x="{middle:.1f}" y="{self.height - 7:g}" text-anchor="middle" class="soft">{label}</text>'
        if self.y.label:
            label, middle = escape_html(shorten(self.y.label, _LONGEST_LABEL)), (_TOP + floor) / 2
            turned = f'transform="translate(12,{middle:.1f}) rotate(-90)"'
            yield f'<text {turned} text-anchor="middle" class="soft">{label}</text>'


def rows_axis(count: int) -> Axis:
    """A y axis for that many rows, the first on top."""
    return Axis("", count - 0.5, -0.5)


def _finite(*numbers: float) -> bool:
    return all(map(math.isfinite, numbers))
