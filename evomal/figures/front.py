"""Size against fitness: every loss that a search trained, with those that none beats in both."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from evomal.errors import EvomalError
from evomal.figures.style import (
    BLUE,
    GREY,
    counting_axis,
    cut_axis,
    drawable,
    figure_style,
    in_figure,
    label_of,
    new_figure,
    sentence_figure,
)
from evomal.methods import readable
from evomal.runs import RecordedCandidate
from evomal.runs.candidates import genome_from
from evomal.runs.reading import UNKNOWN, Runs
from evomal.text import shorten


@dataclass(frozen=True)
class FrontPoint:
    """A loss that was trained."""

    size: int
    """Nodes of its tree; of a polynomial how many numbers, of any other form 1."""
    value: float
    """The metric itself."""
    candidate: RecordedCandidate
    is_on_front: bool

    @property
    def generation(self) -> int:
        """Counted from 1."""
        return self.candidate.generation + 1

    def formula(self) -> str:
        """The simplified formula with its weights; the recorded text where there is none."""
        return formula_of(self.candidate)


@dataclass(frozen=True)
class Front:
    """All losses that one search trained, by size, then by fitness."""

    task: str
    method: str
    metric: str
    higher_is_better: bool
    points: tuple[FrontPoint, ...]
    unsized: int
    """Trained losses whose size cannot be told, as a stranger recorded them."""
    sentence: str
    """Why there are none."""

    @property
    def best(self) -> tuple[FrontPoint, ...]:
        """Those that no other beats in size without losing in fitness, smallest first."""
        return tuple(point for point in self.points if point.is_on_front)

    @property
    def unit(self) -> str:
        """What sizes count: nodes of trees, numbers of polynomials, or nothing that has a name."""
        genomes = [point.candidate.genome for point in self.points]
        if all(genome.startswith("[") for genome in genomes):
            return "numbers"
        return "nodes" if all("(" in genome for genome in genomes) else ""

    def columns(self) -> dict[str, list[Any]]:
        """A row for each loss."""
        return {
            "size": [point.size for point in self.points],
            "value": [point.value for point in self.points],
            "metric": [self.metric] * len(self.points),
            "generation": [point.generation for point in self.points],
            "place": [point.candidate.index for point in self.points],
            "on front": [point.is_on_front for point in self.points],
            "genome": [point.candidate.genome for point in self.points],
        }


def front(runs: Runs) -> Front:
    """The front of the one run; as in the search's archive, ties go to the smaller, then to the earlier."""
    run = runs.only()
    if run is None:
        return Front(UNKNOWN, UNKNOWN, UNKNOWN, False, (), 0, runs.sentence)
    sizes = {id(candidate): candidate.size for candidate in run.trained}
    sized = [(size, candidate) for candidate in run.trained if (size := sizes[id(candidate)]) is not None]
    sized.sort(key=lambda pair: (pair[0], pair[1].fitness, pair[1].generation, pair[1].index))
    points: list[FrontPoint] = []
    least = float("inf")
    for size, candidate in sized:
        points.append(FrontPoint(size, run.value(candidate.fitness), candidate, candidate.fitness < least))
        least = min(least, candidate.fitness)
    unsized = len(run.trained) - len(points)
    sentence = "" if points else "nothing was trained in this run"
    return Front(run.task, run.method, run.metric, run.higher_is_better, tuple(points), unsized, sentence)


def formula_of(candidate: RecordedCandidate) -> str:
    """The simplified formula of a candidate, or its recorded text."""
    try:
        return readable(genome_from(candidate.genome), candidate.weights)
    # A record may hold anything, and none of it may end an analysis.
    except (EvomalError, ArithmeticError, AttributeError, LookupError, RecursionError, TypeError, ValueError):
        return candidate.genome


if TYPE_CHECKING:
    from matplotlib.figure import Figure

_HEIGHT = 2.9
_LONGEST_TITLE = 48


def draw_front(data: Front) -> "Figure":
    """A figure of column width; losses beyond the axis are marked at its edge."""
    if not data.points:
        return sentence_figure(data.sentence)
    figure = new_figure("column", _HEIGHT)
    others = [point for point in data.points if not point.is_on_front]
    with figure_style():
        axes = figure.subplots()
        axes.set_title(in_figure(shorten(f"{data.method}, {data.task}", _LONGEST_TITLE)))
        axes.set_xlabel(f"size ({data.unit})" if data.unit else "size")
        axes.set_ylabel(label_of(data.metric, higher_is_better=data.higher_is_better))
        low, high = cut_axis(axes, [point.value for point in data.points], higher_is_better=data.higher_is_better)
        beyond = [point for point in data.points if not low <= point.value <= high]
        within = [point for point in others if low <= point.value <= high]
        axes.scatter(
            [point.size for point in within], [point.value for point in within], s=9, color=GREY, alpha=0.6,
            linewidth=0, label=f"trained with ({len(data.points)})",
        )  # fmt: skip
        sizes, values = [point.size for point in data.best], drawable([point.value for point in data.best])
        # Beyond the last step nothing is better, so that the line goes on to the largest.
        steps = ([*sizes, data.points[-1].size], [*values, values[-1]])
        axes.step(*steps, where="post", color=BLUE)
        axes.plot(sizes, values, color=BLUE, linestyle="", marker="o", markersize=4, label=f"front ({len(sizes)})")
        if beyond:
            edge = low if data.higher_is_better else high
            axes.plot(
                [point.size for point in beyond], [edge] * len(beyond), color=GREY, linestyle="", markersize=4,
                marker="v" if data.higher_is_better else "^", clip_on=False, label=f"beyond the axis ({len(beyond)})",
            )  # fmt: skip
        axes.set_xlim(left=0)
        counting_axis(axes)
        figure.legend(
            loc="outside lower center", ncols=3, handlelength=1.2, fontsize=7, columnspacing=0.8, handletextpad=0.4
        )
    return figure
