"""How the best formula of a search came about: its ancestors, as they are recorded."""

import itertools
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evomal.errors import InputError
from evomal.expression import Expression
from evomal.expression.operators import arity
from evomal.expression.prefix import end_of_subtree
from evomal.figures.style import (
    BLUE,
    GREY,
    VERMILLION,
    counting_axis,
    cut_axis,
    figure_style,
    in_figure,
    label_of,
    new_figure,
    sentence_figure,
)
from evomal.runs import RecordedCandidate
from evomal.runs.reading import UNKNOWN, Run, Runs
from evomal.text import plural, shorten

_Place = tuple[int, int]


@dataclass(frozen=True)
class Ancestor:
    """A candidate among the ancestors, or the best itself."""

    generation: int
    """Counted from 1."""
    place: int
    """In its generation, counted from 0 as parents are recorded."""
    origin: str
    state: str
    value: float
    """The metric itself; NaN where there is none."""
    genome: str
    parents: tuple[int, ...]
    """Positions among the ancestors."""
    main_parent: int | None
    """The fittest parent, the first of equals."""


@dataclass(frozen=True)
class Change:
    """A step of the main line: which part of the main parent gave way to what."""

    ancestor: Ancestor
    replaced: str
    """Empty where the step begins the line."""
    replacement: str


@dataclass(frozen=True)
class Ancestry:
    """The ancestors of the best candidate, oldest first, itself last.

    Whoever has the very genome of one of its parents, as an elite or a copy has, is left out: that parent stands for
    it.
    """

    task: str
    method: str
    metric: str
    higher_is_better: bool
    ancestors: tuple[Ancestor, ...]
    left_out: int
    """How many elites, copies and the like there are between them."""
    sentence: str
    """Why there are no ancestors."""

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """Positions of parent and child."""
        return tuple((parent, child) for child, row in enumerate(self.ancestors) for parent in row.parents)

    @property
    def main_line(self) -> tuple[int, ...]:
        """From the best back to where its fittest parents' fittest parents came from; positions, oldest first."""
        line: list[int] = []
        position: int | None = len(self.ancestors) - 1 if self.ancestors else None
        while position is not None:
            line.append(position)
            position = self.ancestors[position].main_parent
        return tuple(reversed(line))

    def changes(self) -> tuple[Change, ...]:
        """The steps of the main line, oldest first."""
        line = [self.ancestors[position] for position in self.main_line]
        first = [Change(row, "", row.genome) for row in line[:1]]
        rest = [Change(row, *changed(before.genome, row.genome)) for before, row in itertools.pairwise(line)]
        return (*first, *rest)

    def columns(self) -> dict[str, list[Any]]:
        """A row for each ancestor; parents by generation and place."""
        rows, on_line = self.ancestors, set(self.main_line)
        named = [f"{row.generation}/{row.place}" for row in rows]
        return {
            "generation": [row.generation for row in rows],
            "place": [row.place for row in rows],
            "origin": [row.origin for row in rows],
            "state": [row.state for row in rows],
            "value": [row.value for row in rows],
            "metric": [self.metric] * len(rows),
            "parents": [" ".join(named[parent] for parent in row.parents) for row in rows],
            "on main line": [position in on_line for position in range(len(rows))],
            "genome": [row.genome for row in rows],
        }


def ancestry(runs: Runs) -> Ancestry:
    """The ancestors of the best candidate of the one run."""
    run = runs.only()
    if run is None:
        return Ancestry(UNKNOWN, UNKNOWN, UNKNOWN, False, (), 0, runs.sentence)
    best = _best(run)
    if best is None:
        return Ancestry(
            run.task, run.method, run.metric, run.higher_is_better, (), 0, "nothing was trained in this run"
        )
    found, left_out = _traced(run, best)
    sentence = "" if len(found) > 1 else _alone(run, best)
    return Ancestry(run.task, run.method, run.metric, run.higher_is_better, found, left_out, sentence)


def changed(before: str, after: str) -> tuple[str, str]:
    """The smallest part of one expression that, put in place of a part of the other, makes up their difference.

    Both whole texts where they are not expressions, or differ in more than one argument from the root on.
    """
    try:
        old, new = Expression.parse(before, fragment=True), Expression.parse(after, fragment=True)
    except InputError:
        return before, after
    place_in_old = place_in_new = 0
    while old.tokens[place_in_old] == new.tokens[place_in_new]:
        pairs = zip(_arguments(old, place_in_old), _arguments(new, place_in_new), strict=True)
        unequal = [(one, other) for one, other in pairs if old.subtree(one) != new.subtree(other)]
        if len(unequal) != 1:
            break
        ((place_in_old, place_in_new),) = unequal
    return str(old.subtree(place_in_old)), str(new.subtree(place_in_new))


def _arguments(tree: Expression, position: int) -> list[int]:
    """Positions of the arguments of the operator at this position."""
    found, place = [], position + 1
    for _ in range(arity(tree.tokens[position])):
        found.append(place)
        place = end_of_subtree(tree.tokens, place)
    return found


def _best(run: Run) -> RecordedCandidate | None:
    """The final's winner; without one as an archive ranks: the least fitness, then the smaller, then the earlier."""
    if run.final is not None:
        return run.final.winner[0]
    least = min((candidate.fitness for candidate in run.trained), default=math.inf)
    equals = [candidate for candidate in run.trained if candidate.fitness == least]
    return min(equals, key=lambda row: (row.size or math.inf, row.generation, row.index), default=None)


def _traced(run: Run, best: RecordedCandidate) -> tuple[tuple[Ancestor, ...], int]:
    by_place = {(candidate.generation, candidate.index): candidate for candidate in run.candidates}
    parents: dict[_Place, list[_Place]] = {}
    left_out: set[_Place] = set()
    waiting = [(best.generation, best.index)]
    while waiting:
        place = waiting.pop()
        if place in parents:
            continue
        originals = [_original(parent, by_place, left_out) for parent in _parents(by_place[place], by_place)]
        parents[place] = list(dict.fromkeys(originals))
        waiting += parents[place]
    order = sorted(parents)  # a child's generation is later than its parents', so the best comes last
    positions = {place: position for position, place in enumerate(order)}
    rows = []
    for place in order:
        candidate = by_place[place]
        fittest = min(parents[place], key=lambda parent: by_place[parent].fitness, default=None)
        has_fitness = math.isfinite(candidate.fitness)
        rows.append(
            Ancestor(
                generation=candidate.generation + 1,
                place=candidate.index,
                origin=candidate.origin,
                state=str(candidate.state),
                value=run.value(candidate.fitness) if has_fitness else math.nan,
                genome=candidate.genome,
                parents=tuple(positions[parent] for parent in parents[place]),
                main_parent=None if fittest is None else positions[fittest],
            )
        )
    return tuple(rows), len(left_out)


def _parents(candidate: RecordedCandidate, by_place: Mapping[_Place, RecordedCandidate]) -> list[_Place]:
    """Those that are there: a stranger may have recorded parents that are not."""
    places = [(candidate.generation - 1, index) for index in candidate.parents]
    return [place for place in places if place in by_place]


def _original(place: _Place, by_place: Mapping[_Place, RecordedCandidate], left_out: set[_Place]) -> _Place:
    """Whoever first had the genome that was handed on to this place."""
    while True:
        genome = by_place[place].genome
        givers = [parent for parent in _parents(by_place[place], by_place) if by_place[parent].genome == genome]
        if not givers:
            return place
        left_out.add(place)
        place = givers[0]


def _alone(run: Run, best: RecordedCandidate) -> str:
    if best.parents:
        return "the parents of the best candidate are not recorded"
    if any(candidate.parents for candidate in run.candidates):
        return f"the best candidate has no parents: its origin is {best.origin!r}, in generation {best.generation + 1}"
    if run.generations == 1:
        return "there is one generation, so that no candidate has parents"
    origins = " or ".join(dict.fromkeys(candidate.origin for candidate in run.candidates))
    return f"the candidates of {run.method} have no parents: their origin is {origins}"


if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

_PANEL_HEIGHT, _LINE_HEIGHT = 2.7, 0.135
_MOST_STEPS = 12
_LINE_LENGTH = 118
_TEXT_SIZE = 6.0
_LONGEST_TITLE = 90
_LEAST_PART = 12  # characters


def draw_ancestry(data: Ancestry) -> "Figure":
    """A figure of page width: ancestors above, the main line's changes below."""
    if not data.ancestors:
        return sentence_figure(data.sentence, "page")
    lines = change_lines(data.changes(), most=_MOST_STEPS, length=_LINE_LENGTH)
    if data.sentence:
        lines.insert(0, shorten(data.sentence, _LINE_LENGTH))
    text_height = _LINE_HEIGHT * (len(lines) + 1)
    figure = new_figure("page", _PANEL_HEIGHT + text_height)
    with figure_style():
        axes, below = figure.subplots(2, 1, gridspec_kw={"height_ratios": [_PANEL_HEIGHT, text_height]})
        below.set_axis_off()
        text = "\n".join(map(in_figure, lines))
        written = below.text(0, 1, text, family="DejaVu Sans Mono", fontsize=_TEXT_SIZE, va="top")
        written.set_in_layout(False)  # it is cut to fit, and must not narrow the panel above
        axes.set_title(in_figure(shorten(f"{data.method}, {data.task}", _LONGEST_TITLE)), loc="left")
        _draw(axes, data)
        figure.legend(loc="outside upper center", ncols=4)
    return figure


def change_lines(changes: Sequence[Change], *, most: int, length: int) -> list[str]:
    """The steps of a main line in at most so many lines of at most that length: the first, then the last ones."""
    shown: list[Change | int] = [*changes]
    if len(changes) > most:
        shown = [changes[0], len(changes) - most + 1, *changes[len(changes) - most + 2 :]]
    return [
        f"… {plural(entry, 'step')} …" if isinstance(entry, int) else _line(entry, length=length) for entry in shown
    ]


def _line(change: Change, *, length: int) -> str:
    row = change.ancestor
    value = "none" if math.isnan(row.value) else f"{row.value:.4g}"
    head = f"{row.generation:>4} {shorten(row.origin, 9):<9} {value:>9}  "
    if not change.replaced:
        return head + shorten(change.replacement, length - len(head))
    room = length - len(head) - len(" → ")
    # Either part may have what the other leaves, but neither takes all.
    for_old = max(_LEAST_PART, min(len(change.replaced), room - min(len(change.replacement), room // 2)))
    return f"{head}{shorten(change.replaced, for_old)} → {shorten(change.replacement, room - for_old)}"


def _draw(axes: "Axes", data: Ancestry) -> None:
    from matplotlib.collections import LineCollection

    rows = data.ancestors
    low, high = cut_axis(axes, [row.value for row in rows], higher_is_better=data.higher_is_better)
    worst = low if data.higher_is_better else high

    def place(row: Ancestor) -> tuple[float, float]:
        # What has no value, or lies beyond the axis, stands at its edge.
        return row.generation, worst if math.isnan(row.value) else min(max(row.value, low), high)

    places = [place(row) for row in rows]
    lines = [(places[parent], places[child]) for parent, child in data.edges]
    axes.add_collection(LineCollection(lines, colors=GREY, linewidths=0.4, alpha=0.5, zorder=1))
    is_beyond = [not low <= row.value <= high for row in rows]
    for beyond, marker, what in (
        (False, "o", f"{plural(len(rows) - 1, 'ancestor')} ({data.left_out} copies left out)"),
        (True, "v" if data.higher_is_better else "^", f"{sum(is_beyond)} without a value or beyond the axis"),
    ):
        found = [at for at, is_so in zip(places[:-1], is_beyond[:-1], strict=True) if is_so == beyond]
        if found:
            axes.plot(
                *_columns(found), color=GREY, linestyle="", marker=marker, markersize=3.5 if beyond else 2.5, zorder=2,
                clip_on=not beyond, label=what,
            )  # fmt: skip
    line = [places[position] for position in data.main_line]
    if len(line) > 1:
        axes.plot(*_columns(line), color=BLUE, marker="o", markersize=3.5, zorder=3, label="fittest parents")
    axes.plot(*_columns(line[-1:]), color=VERMILLION, linestyle="", marker="D", markersize=5, zorder=4, label="best")
    axes.set_xlabel("generation")
    axes.set_ylabel(label_of(data.metric, higher_is_better=data.higher_is_better))
    axes.set_xlim(0.5, rows[-1].generation + 0.5)
    counting_axis(axes)


def _columns(places: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    return [x for x, _ in places], [y for _, y in places]
