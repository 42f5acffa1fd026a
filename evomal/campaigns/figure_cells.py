"""The figures of a campaign that need trainings of their own: one cell each, run after the comparison of its task.

They show the baseline, known losses and, for each method, the loss of the search with the best fitness, each at the
learning rate that the comparison found for it. Training curves, landscapes and representations share their trainings,
which are kept with their models, so that a cell that was stopped continues with the next training.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evomal.campaigns.cells import CellFolder, PlannedComparison, PlannedSearch, TimeLimit, commit, hardware_of
from evomal.campaigns.declaration import STRONG, FigurePlan
from evomal.campaigns.record import FigureCell, Made
from evomal.engine.procedures import split_procedure
from evomal.figures.landscape import draw_landscapes, landscapes
from evomal.figures.learning_rate import draw_rate_curves, rate_curves
from evomal.figures.style import Figure, save_figure
from evomal.figures.training_curves import draw_training_curves, training_curves
from evomal.files import create_folder
from evomal.paper.representations import draw_representations, representations
from evomal.report import figure_lines
from evomal.runs.callbacks import SearchListener
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
        found = CellFolder(self.folder).result(self.planned)
        return None if found is None else FigureCell.model_validate(found)

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
        made = Made(commit=commit(), hardware=hardware_of(self.comparison.settings), seconds=seconds[0])
        cell = FigureCell(kind=self.kind, made=made, lines=tuple(lines))
        place.finish(self.planned, cell.model_dump(mode="json"))
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
