"""How the best formula of a search was found: its recorded ancestors."""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from evomal.errors import InputError
from evomal.expression import Expression
from evomal.expression.operators import arity
from evomal.expression.prefix import end_of_subtree
from evomal.figures import style
from evomal.figures.data import NOTHING_TRAINED, table
from evomal.figures.style import BLUE, GREY, VERMILLION, Axes, Figure
from evomal.methods.candidates import Candidate, best_of
from evomal.runs.recorded_run import Run, Runs
from evomal.text import plural, shorten

_Place = tuple[int, int]


@dataclass(frozen=True)
class Ancestor:
    """An ancestor of the best candidate, or the best itself."""

    candidate: Candidate
    value: float
    """The metric; NaN where there is none."""
    parents: tuple[int, ...]
    """Positions among the ancestors."""
    main_parent: int | None
    """The fittest parent, the first of equals."""


@dataclass(frozen=True)
class Change:
    """A step of the main line: which part of the main parent was replaced by what."""

    ancestor: Ancestor
    replaced: str
    """Empty for the first ancestor of the line."""
    replacement: str


@dataclass(frozen=True)
class Ancestry:
    """The ancestors of the best candidate, oldest first, the best itself last.

    A candidate with the genome and the weights of one of its parents, such as an elite or a copy, is left out in favour
    of that parent.
    """

    run: Run
    ancestors: tuple[Ancestor, ...]
    left_out: int
    """The number of elites and copies that were left out."""
    sentence: str
    """Why there are no ancestors."""

    @property
    def edges(self) -> tuple[tuple[int, int], ...]:
        """The positions of each parent and child."""
        return tuple((parent, child) for child, row in enumerate(self.ancestors) for parent in row.parents)

    @property
    def main_line(self) -> tuple[int, ...]:
        """The positions of the best, its fittest parent, that one's fittest parent and so on; oldest first."""
        line: list[int] = []
        position: int | None = len(self.ancestors) - 1 if self.ancestors else None
        while position is not None:
            line.append(position)
            position = self.ancestors[position].main_parent
        return tuple(reversed(line))

    def changes(self) -> tuple[Change, ...]:
        """Return the steps of the main line, oldest first."""
        line = [self.ancestors[position] for position in self.main_line]
        first = [Change(row, "", row.candidate.genome) for row in line[:1]]
        pairs = itertools.pairwise(line)
        return (*first, *(Change(row, *_step(old.candidate, row.candidate)) for old, row in pairs))

    def columns(self) -> dict[str, list[Any]]:
        """Return a table with one row per ancestor; parents are given by generation and place."""
        named = [f"{row.candidate.generation + 1}/{row.candidate.index}" for row in self.ancestors]
        on_line = set(self.main_line)
        return table(
            ("generation", "place", "origin", "state", "value", "metric", "parents", "on main line", "genome"),
            (
                (
                    at.generation + 1, at.index, at.origin, str(at.state), row.value, self.run.metric,
                    " ".join(named[parent] for parent in row.parents), position in on_line, at.genome,
                )
                for position, row in enumerate(self.ancestors)
                for at in [row.candidate]
            ),
        )  # fmt: skip


def ancestry(runs: Runs) -> Ancestry:
    """Return the ancestors of the best candidate of one run; a sentence says why if there are none."""
    run = runs.only()
    # The final's winner, or the best candidate where there was no final.
    best = best_of(run.trained) if run.final is None else run.final.winner[0]
    return Ancestry(run, (), 0, NOTHING_TRAINED) if best is None else ancestry_of(run, best)


def ancestry_of(run: Run, candidate: Candidate) -> Ancestry:
    """Return the ancestors of any candidate of a run."""
    found, left_out = _traced(run, candidate)
    return Ancestry(run, found, left_out, "" if len(found) > 1 else _why_alone(run, candidate))


def changed(before: str, after: str) -> tuple[str, str]:
    """Return the smallest part of one expression and what replaces it in the other.

    Both whole texts are returned if they are not expressions, or differ in several arguments from the root on.

    Example:
        >>> changed("abs(sub(f, y))", "abs(sub(f, 1))")
        ('y', '1')
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


def _step(before: Candidate, after: Candidate) -> tuple[str, str]:
    """What was replaced by what between a parent and its child: a part of the expression, or weights."""
    if before.genome != after.genome:
        return changed(before.genome, after.genome)
    count = sum(old != new for old, new in zip(before.weights, after.weights, strict=False))
    return f"{count} of {plural(len(after.weights), 'weight')}", "others"


def _loss_of(candidate: Candidate) -> tuple[str, tuple[float, ...]]:
    return candidate.genome, candidate.weights


def _arguments(tree: Expression, position: int) -> list[int]:
    """Positions of the arguments of the operator at this position."""
    found, place = [], position + 1
    for _ in range(arity(tree.tokens[position])):
        found.append(place)
        place = end_of_subtree(tree.tokens, place)
    return found


def _traced(run: Run, best: Candidate) -> tuple[tuple[Ancestor, ...], int]:
    """The ancestors, and how many copies were left out."""
    by_place = {(candidate.generation, candidate.index): candidate for candidate in run.candidates}

    def parents_of(place: _Place) -> list[_Place]:
        # Those that exist: an untrusted record may name any.
        candidate = by_place[place]
        return [at for index in candidate.parents if (at := (candidate.generation - 1, index)) in by_place]

    def original(place: _Place) -> _Place:
        """The first candidate with the loss that was copied to this place."""
        while givers := [at for at in parents_of(place) if _loss_of(by_place[at]) == _loss_of(by_place[place])]:
            left_out.add(place)
            place = givers[0]
        return place

    parents: dict[_Place, list[_Place]] = {}
    left_out: set[_Place] = set()
    waiting = [(best.generation, best.index)]
    while waiting:
        place = waiting.pop()
        if place not in parents:
            parents[place] = list(dict.fromkeys(map(original, parents_of(place))))
            waiting += parents[place]
    order = sorted(parents)  # a child's generation is later than its parents', so the best comes last
    positions = {place: position for position, place in enumerate(order)}
    rows = []
    for place in order:
        candidate = by_place[place]
        value = run.value(candidate.fitness) if math.isfinite(candidate.fitness) else math.nan
        fittest = min(parents[place], key=lambda parent: by_place[parent].fitness, default=None)
        main_parent = None if fittest is None else positions[fittest]
        rows.append(Ancestor(candidate, value, tuple(positions[parent] for parent in parents[place]), main_parent))
    return tuple(rows), len(left_out)


def _why_alone(run: Run, best: Candidate) -> str:
    if best.parents:
        return "the parents of the best candidate are not recorded"
    if any(candidate.parents for candidate in run.candidates):
        return f"the best candidate has no parents: its origin is {best.origin!r}, in generation {best.generation + 1}"
    if run.generations == 1:
        return "there is only one generation, so no candidate has parents"
    origins = " or ".join(dict.fromkeys(candidate.origin for candidate in run.candidates))
    return f"the candidates of {run.method} have no parents: their origin is {origins}"


_PANEL_HEIGHT, _LINE_HEIGHT = 2.7, 0.135
_MOST_STEPS = 12
_LINE_LENGTH, _LONGEST_TITLE, _LEAST_PART = 118, 90, 12  # characters
_ORIGIN, _LONGEST_ORIGIN = 9, 16  # those of "crossover" and of the longest name of a mutation


@style.figure_style()
def draw_ancestry(data: Ancestry) -> Figure:
    """Draw the ancestors above, and the changes along the main line below."""
    if not data.ancestors:
        return style.sentence_figure(data.sentence, "page")
    lines = change_lines(data.changes(), most=_MOST_STEPS, length=_LINE_LENGTH)
    if data.sentence:
        lines.insert(0, shorten(data.sentence, _LINE_LENGTH))
    text_height = _LINE_HEIGHT * (len(lines) + 1)
    figure = style.new_figure("page", _PANEL_HEIGHT + text_height)
    axes, below = figure.subplots(2, 1, gridspec_kw={"height_ratios": [_PANEL_HEIGHT, text_height]})
    below.set_axis_off()
    # The text is cut to fit, and must not narrow the panel above.
    below.text(
        0, 1, "\n".join(map(style.figure_text, lines)), family="DejaVu Sans Mono", fontsize=6, va="top",
        in_layout=False,
    )  # fmt: skip
    axes.set_title(style.figure_text(f"{data.run.method}, {data.run.task}", _LONGEST_TITLE), loc="left")
    _draw(axes, data)
    figure.legend(loc="outside upper center", ncols=4)
    return figure


def change_lines(changes: Sequence[Change], *, most: int, length: int) -> list[str]:
    """Return the steps of a main line as text: at most `most` lines of at most `length` characters.

    If there are more steps, the first and the last ones are shown.
    """
    origin = min(max((len(change.ancestor.candidate.origin) for change in changes), default=0), _LONGEST_ORIGIN)
    lines = [_line(change, length=length, origin=max(origin, _ORIGIN)) for change in changes]
    if len(lines) <= most:
        return lines
    hidden = len(lines) - most + 1
    return [lines[0], f"… {plural(hidden, 'step')} …", *lines[hidden + 1 :]]


def _line(change: Change, *, length: int, origin: int) -> str:
    row = change.ancestor
    value = "none" if math.isnan(row.value) else f"{row.value:.4g}"
    head = f"{row.candidate.generation + 1:>4} {shorten(row.candidate.origin, origin):<{origin}} {value:>9}  "
    if not change.replaced:
        return head + shorten(change.replacement, length - len(head))
    room = length - len(head) - len(" → ")
    # Either part may use the room that the other leaves, but neither takes all.
    for_old = max(_LEAST_PART, min(len(change.replaced), room - min(len(change.replacement), room // 2)))
    return f"{head}{shorten(change.replaced, for_old)} → {shorten(change.replacement, room - for_old)}"


def _draw(axes: Axes, data: Ancestry) -> None:
    from matplotlib.collections import LineCollection

    rows, run = data.ancestors, data.run
    values = [row.value for row in rows]
    low, high = style.metric_axis(axes, run.metric, values, higher_is_better=run.higher_is_better)
    worst, marker = (low, "v") if run.higher_is_better else (high, "^")
    # Ancestors without a value, or beyond the axis, are drawn at its edge.
    heights = [worst if math.isnan(value) else min(max(value, low), high) for value in values]
    places = [(row.candidate.generation + 1, height) for row, height in zip(rows, heights, strict=True)]
    lines = [(places[parent], places[child]) for parent, child in data.edges]
    axes.add_collection(LineCollection(lines, colors=GREY, linewidths=0.4, alpha=0.5, zorder=1))

    def plot(positions: Sequence[int], **options: Any) -> None:
        if positions:
            axes.plot([places[at][0] for at in positions], [places[at][1] for at in positions], **options)

    ancestors = range(len(rows) - 1)
    beyond = [at for at in ancestors if not low <= values[at] <= high]
    plot(
        [at for at in ancestors if at not in beyond], color=GREY, linestyle="", marker="o", markersize=2.5, zorder=2,
        label=f"{plural(len(rows) - 1, 'ancestor')} ({data.left_out} copies left out)",
    )  # fmt: skip
    plot(
        beyond, color=GREY, linestyle="", marker=marker, markersize=3.5, zorder=2, clip_on=False,
        label=f"{len(beyond)} without a value or beyond the axis",
    )  # fmt: skip
    if len(data.main_line) > 1:
        plot(data.main_line, color=BLUE, marker="o", markersize=3.5, zorder=3, label="fittest parents")
    plot([len(rows) - 1], color=VERMILLION, linestyle="", marker="D", markersize=5, zorder=4, label="best")
    axes.set_xlabel("generation")
    axes.set_xlim(0.5, places[-1][0] + 0.5)
    style.whole_number_axis(axes)
