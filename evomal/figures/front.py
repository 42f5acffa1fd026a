"""Size against fitness: every loss that a search trained, and the front of those that no other beats in both."""

from dataclasses import dataclass
from typing import Any

from evomal.errors import EvomalError
from evomal.figures import style
from evomal.figures.data import NOTHING_TRAINED, table
from evomal.figures.style import BLUE, GREY, Figure
from evomal.methods import readable
from evomal.methods.candidates import Candidate, front_of, genome_from
from evomal.runs.recorded_run import Run, Runs


@dataclass(frozen=True)
class FrontPoint:
    """A loss that was trained."""

    size: int
    """The number of nodes of a tree, or of numbers of a polynomial; 1 for any other form."""
    value: float
    """The metric."""
    candidate: Candidate
    is_on_front: bool


@dataclass(frozen=True)
class Front:
    """All losses that one search trained, by size, then by fitness."""

    run: Run
    points: tuple[FrontPoint, ...]

    @property
    def best(self) -> tuple[FrontPoint, ...]:
        """The points on the front, smallest first: no other is smaller without being worse."""
        return tuple(point for point in self.points if point.is_on_front)

    @property
    def unsized(self) -> int:
        """How many recorded losses are no formulas, so that they have no size."""
        return len(self.run.comparable) - len(self.points)

    @property
    def unit(self) -> str:
        """What sizes count: nodes of trees, numbers of polynomials; empty for a mixture."""
        genomes = [point.candidate.genome for point in self.points]
        if all(genome.startswith("[") for genome in genomes):
            return "numbers"
        return "nodes" if all("(" in genome for genome in genomes) else ""

    def columns(self) -> dict[str, list[Any]]:
        """Return a table with one row per loss."""
        return table(
            ("size", "value", "metric", "generation", "place", "on front", "genome"),
            (
                (p.size, p.value, self.run.metric, at.generation + 1, at.index, p.is_on_front, at.genome)
                for p in self.points
                for at in [p.candidate]
            ),
        )


def front(runs: Runs) -> Front:
    """Return all losses that one run trained, with those on the front of size and fitness marked."""
    run = runs.only()
    best = {(candidate.generation, candidate.index) for candidate in front_of(run.comparable)}
    points = [
        FrontPoint(size, run.value(candidate.fitness), candidate, (candidate.generation, candidate.index) in best)
        for candidate in run.comparable
        if (size := candidate.size) is not None
    ]
    return Front(run, tuple(sorted(points, key=lambda point: (point.size, point.candidate.rank))))


def formula_of(candidate: Candidate) -> str:
    """Return the simplified formula of a candidate, or its recorded text."""
    try:
        return readable(genome_from(candidate.genome), candidate.weights)
    # A record may hold anything, and nothing in it may end an analysis.
    except (EvomalError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return candidate.genome


@style.figure_style()
def draw_front(data: Front) -> Figure:
    """Draw size against the metric, with the front as a line; losses beyond the axis are marked at its edge."""
    if not data.points:
        return style.sentence_figure(NOTHING_TRAINED)
    run, figure = data.run, style.new_figure("column", 2.9)
    axes = figure.subplots()
    axes.set_title(style.figure_text(f"{run.method}, {run.task}", 48))
    axes.set_xlabel(f"size ({data.unit})" if data.unit else "size")
    values = [point.value for point in data.points]
    low, high = style.metric_axis(axes, run.metric, values, higher_is_better=run.higher_is_better)
    beyond = [point.size for point in data.points if not low <= point.value <= high]
    within = [point for point in data.points if not point.is_on_front and low <= point.value <= high]
    axes.scatter(
        [point.size for point in within], [point.value for point in within], s=9, color=GREY, alpha=0.6,
        linewidth=0, label=f"trained ({len(data.points)})",
    )  # fmt: skip
    sizes, best = [point.size for point in data.best], style.drawable([point.value for point in data.best])
    # No larger loss is better than the last one of the front, so the line continues to the largest.
    axes.step([*sizes, data.points[-1].size], [*best, best[-1]], where="post", color=BLUE)
    axes.plot(sizes, best, color=BLUE, linestyle="", marker="o", markersize=4, label=f"front ({len(sizes)})")
    if beyond:
        edge, marker = (low, "v") if run.higher_is_better else (high, "^")
        axes.plot(
            beyond, [edge] * len(beyond), color=GREY, linestyle="", markersize=4, marker=marker, clip_on=False,
            label=f"beyond the axis ({len(beyond)})",
        )  # fmt: skip
    axes.set_xlim(left=0)
    style.whole_number_axis(axes)
    figure.legend(
        loc="outside lower center", ncols=3, handlelength=1.2, fontsize=7, columnspacing=0.8, handletextpad=0.4
    )
    return figure
