"""The figures of a campaign, and its files: result, page and figures.

Search curves, filters and run times are drawn from the records of searches; gains, the test costs of learned losses
relative to the tuned baseline, from the results. Figures that need trainings of their own are cells, which are run
after the comparison of their task. They show the baseline, known losses and, for each method, the loss of the search
with the best fitness, each at the learning rate that the comparison found for it. Training curves, landscapes and
representations share their trainings, which are kept with their models, so that a cell that was stopped continues with
the next training.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evomal.campaigns.cells import CellFolder, PlannedComparison, PlannedSearch, TimeLimit, provenance
from evomal.campaigns.declaration import STRONG, Campaign, FigurePlan
from evomal.campaigns.record import FILE_NAME, LONGEST, CampaignResult, FigureCell, MeasuredTask
from evomal.campaigns.tables import campaign_markdown
from evomal.engine.procedures import split_procedure
from evomal.figures import style
from evomal.figures.data import table
from evomal.figures.filter_shares import draw_filter_shares, filter_shares
from evomal.figures.landscape import draw_landscapes, landscapes
from evomal.figures.learning_rate import draw_rate_curves, rate_curves
from evomal.figures.run_times import draw_run_times, run_times
from evomal.figures.search_curves import draw_search_curves, search_curves
from evomal.figures.style import GREY, Figure, save_figure
from evomal.figures.training_curves import draw_training_curves, training_curves
from evomal.files import create_folder, find_foreign, write_atomically
from evomal.paper.representations import draw_representations, representations
from evomal.report import figure_lines
from evomal.runs.callbacks import SearchListener
from evomal.runs.reading import read_runs
from evomal.runs.recorded_run import Runs
from evomal.runs.store import BEST_NAME
from evomal.tasks.recipe import final_recipe
from evomal.tasks.task import Task
from evomal.verdict.comparing import rate_curve

_OF_MODELS: dict[str, tuple[Callable[..., Any], Callable[[Any], Figure], Callable[[Any], Iterator[str]]]] = {
    "training-curves": (training_curves, draw_training_curves, figure_lines.training_lines),
    "landscapes": (landscapes, draw_landscapes, figure_lines.landscape_lines),
    "representations": (representations, draw_representations, figure_lines.representation_lines),
}


@dataclass(frozen=True)
class PlannedFigure:
    """One figure of a task."""

    kind: str
    plan: FigurePlan
    comparison: PlannedComparison
    folder: Path

    def __str__(self) -> str:
        return f"{self.comparison.task.name}/{self.kind}"

    @property
    def planned(self) -> dict[str, Any]:
        """Everything that can change the figure."""
        own = {"kind": self.kind, "losses": list(self.plan.losses or ()), "seeds": self.plan.seeds}
        more = {"rates": list(self.plan.rates), "rate_steps": self.plan.rate_steps}
        return {**own, **(more if self.kind == "learning-rates" else {}), "comparison": self.comparison.planned}

    @property
    def cell(self) -> FigureCell | None:
        """What came of it, if it is finished."""
        return CellFolder(self.folder).cell(FigureCell, self.planned)

    @property
    def is_ready(self) -> bool:
        """Whether the comparison, which says at which learning rates to train, is finished."""
        return self.comparison.cell is not None

    def run(self, task: Task, figures: Path, limit: TimeLimit, listener: SearchListener | None) -> FigureCell:
        """Train what is not trained yet, and draw the figure into a folder."""
        place = CellFolder(create_folder(self.folder))
        with place.timed() as seconds:
            data, drawn, lines = self._drawn(task, limit, listener)
            save_figure(drawn, create_folder(figures) / f"{self.comparison.task.name}-{self.kind}", data.columns())
        cell = FigureCell(kind=self.kind, made=provenance(self.comparison.settings, seconds[0]), lines=tuple(lines))
        place.finish(self.planned, cell)
        return cell

    def _drawn(
        self, task: Task, limit: TimeLimit, listener: SearchListener | None
    ) -> tuple[Any, Figure, Iterator[str]]:
        settings, shown = self.comparison.settings, self._shown(task)
        losses = {name: loss for name, (loss, _) in shown.items()}
        if self.kind == "learning-rates":
            if self.plan.rate_steps is not None:
                settings = settings.with_changes(final_steps=self.plan.rate_steps)
            found = rate_curves(
                rate_curve(
                    task, rates=self.plan.rates, losses=losses, seeds=self.plan.seeds, settings=settings,
                    folder=self.folder, listener=limit.listener(listener),
                )
            )  # fmt: skip
            return found, draw_rate_curves(found), figure_lines.rate_lines(found)
        recipe = final_recipe(task.recipe, settings)
        make, draw, lines = _OF_MODELS[self.kind]

        def report(steps: int) -> None:
            limit.check()
            if listener is not None:
                listener.on_steps("train", steps)

        optimizer = {} if settings.optimizer is None else {"optimizer": settings.optimizer}
        options: dict[str, Any] = {
            **settings.recipe_changes(), **optimizer,
            "seeds": self.plan.seeds, "steps": recipe.steps, "milestones": recipe.milestones,
            "device": settings.device, "precision": settings.precision, "channels_last": settings.channels_last,
            "rates": {name: lr for name, (_, lr) in shown.items() if lr is not None},
            "kept": self.folder.parent / "models", "report": report,
            "announce": None if listener is None else listener.announce,
        }  # fmt: skip
        data = make(task, losses, **options)
        return data, draw(data), lines(data)

    def _shown(self, task: Task) -> dict[str, tuple[str | Path, float | None]]:
        """The losses by their names in the comparison, each with its learning rate there."""
        cell = self.comparison.cell
        assert cell is not None
        rows = {row.name: row.losses for row in cell.rows if row.variant == ("tuned" if cell.tune_lr else "plain")}
        declared = self.comparison.task.losses if self.plan.losses is None else self.plan.losses
        known = [name for name in declared if name != STRONG and split_procedure(name)[1] is None]
        found: dict[str, tuple[str | Path, float | None]] = {}
        for name in dict.fromkeys([cell.baseline, *known]):
            first = next(iter(rows.get(name, ())), None)
            found[name] = name, None if first is None else first.lr
        for name, searches in self.comparison.contestants.items():
            costs = [_cost(one, task) for one in searches]
            best = costs.index(min(costs))
            loss = rows[name][best]
            if loss is not None:
                found[name] = searches[best].folder / BEST_NAME, loss.lr
        return found


def _cost(one: PlannedSearch, task: Task) -> float:
    """The cost, in the search itself, of what it found; infinite if it found nothing."""
    cell = one.cell
    return math.inf if cell is None or cell.fitness is None else task.metric.cost(cell.fitness)


NOTHING_COMPARED = "No task of this campaign has been compared yet."
BEST_KNOWN = "best known loss"
_LARGEST = 4.0  # times the baseline's cost; what lies beyond is drawn at the edge
_SMALLEST = 1e-3
_ROW = 0.3  # inches


@dataclass(frozen=True)
class Gain:
    """One loss on one task."""

    task: str
    contestant: str
    """The method that found it, or `best known loss`."""
    name: str
    search: int | None
    ratio: float
    """Its mean test cost divided by that of the baseline; inf if a training diverged."""


@dataclass(frozen=True)
class Gains:
    """The losses of several tasks."""

    points: tuple[Gain, ...]

    def columns(self) -> dict[str, list[Any]]:
        """Return a table with one row per loss."""
        names = ("task", "contestant", "name", "search", "ratio")
        return table(names, ((one.task, one.contestant, one.name, one.search, one.ratio) for one in self.points))


def gains(tasks: Sequence[MeasuredTask]) -> Gains:
    """Return the ratios for tasks with positive costs; others have no meaningful ratio."""
    found = []
    for task in tasks:
        assert task.comparison is not None
        base, best = task.mean(task.comparison.baseline), task.best_known
        if not (math.isfinite(base) and base > 0) or task.higher_is_better:
            continue
        found.append(Gain(task.title, BEST_KNOWN, best, None, task.mean(best) / base))
        for name in task.contestants:
            means = task.search_means(name)
            found += [Gain(task.title, name, name, seed, mean / base) for seed, mean in enumerate(means)]
    return Gains(tuple(found))


@style.figure_style()
def draw_gains(data: Gains) -> Figure:
    """Draw one line per task, with a mark for each loss; left of 1 is better than the tuned baseline."""
    if not data.points:
        return style.sentence_figure(NOTHING_COMPARED)
    tasks = list(dict.fromkeys(one.task for one in data.points))
    contestants = list(dict.fromkeys(one.contestant for one in data.points if one.contestant != BEST_KNOWN))
    figure = style.new_figure("page", 1.1 + _ROW * len(tasks) * max(1.0, len(contestants) / 2))
    axes = figure.subplots()
    drawn = [min(max(one.ratio, _SMALLEST), _LARGEST) for one in data.points if math.isfinite(one.ratio)]
    for place, task in enumerate(reversed(tasks)):
        axes.axhline(place, color=GREY, alpha=0.15, linewidth=0.6, zorder=1)
        for number, name in enumerate([BEST_KNOWN, *contestants]):
            ratios = [one.ratio for one in data.points if (one.task, one.contestant) == (task, name)]
            shown = [max(ratio, _SMALLEST) if ratio <= _LARGEST else _LARGEST for ratio in ratios]
            is_known = name == BEST_KNOWN
            offset = 0.0 if is_known else (number - (len(contestants) + 1) / 2) * 0.7 / max(1, len(contestants))
            colour = style.INK if is_known else style.line_style(number - 1)[0]
            axes.scatter(
                shown, [place - offset] * len(shown), marker="D" if is_known else "o", s=22 if is_known else 14,
                color=colour, facecolor="none" if is_known else colour, alpha=1.0 if is_known else 0.7,
                linewidth=1.0 if is_known else 0, zorder=3, label=name if place == 0 else None,
            )  # fmt: skip
    axes.axvline(1.0, color=GREY, linewidth=0.8, zorder=2)
    if style.is_far_apart(style.drawable(drawn), 5.0):
        from matplotlib.ticker import LogLocator, NullLocator

        axes.set_xscale("log")
        spans_decades = style.is_far_apart(style.drawable(drawn), 20.0)
        axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5) if spans_decades else (1, 2, 3, 5, 7)))
        axes.xaxis.set_major_formatter("{x:g}")
        axes.xaxis.set_minor_locator(NullLocator())
    axes.set_yticks(range(len(tasks)), [style.figure_text(task, 44) for task in reversed(tasks)])
    axes.set_ylim(-0.6, len(tasks) - 0.4)
    axes.set_xlabel("test cost divided by that of the tuned baseline (lower is better)")
    style.add_legend(figure, axes)
    lost = sum(not one.ratio <= _LARGEST for one in data.points)
    edge = f"{lost} beyond {_LARGEST:g} or diverged, drawn at the right edge" if lost else ""
    style.add_note(figure, "one mark per search: the mean of its loss over the evaluation seeds", edge)
    return figure


PAGE_NAME, FIGURES = "campaign.md", "figures"
_OF_SEARCHES: dict[str, tuple[Callable[[Runs], Any], Callable[[Any], Figure]]] = {
    "search-curves": (search_curves, draw_search_curves),
    "filters": (filter_shares, draw_filter_shares),
    "run-times": (run_times, draw_run_times),
}


def write_files(result: CampaignResult, out: Path, campaign: Campaign) -> None:
    """Write what is measured so far, unless the files are up to date; the figures of a task after its last search."""
    if find_foreign(out / FILE_NAME, limit=LONGEST) == result.text().encode():
        return
    compared = gains([task for task in result.tasks if task.comparison is not None])
    figures = create_folder(out / FIGURES)
    if compared.points:
        save_figure(draw_gains(compared), figures / "gains", compared.columns())
    declared = {task.name: task for task in campaign.tasks}
    for task in result.tasks:
        plan = declared[task.name]
        kinds = [kind for kind in plan.figures.kinds if kind in _OF_SEARCHES]
        if task.searches and kinds and len(task.searches) == len(plan.presets) * len(plan.methods) * plan.search_seeds:
            runs = read_runs([out / task.name / "searches"])
            for kind in kinds:
                make, draw = _OF_SEARCHES[kind]
                data = make(runs)
                save_figure(draw(data), figures / f"{task.name}-{kind}", data.columns())
    write_atomically(out / PAGE_NAME, campaign_markdown(result, figures).encode())
    result.write(out / FILE_NAME)  # last, as it shows that the other files are up to date
