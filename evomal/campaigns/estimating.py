"""How long the cells of a campaign will take, from finished cells of the same kind or from a few training steps."""

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from evomal.campaigns.cells import PlannedComparison, PlannedSearch
from evomal.campaigns.declaration import STRONG
from evomal.campaigns.figures import PlannedFigure
from evomal.campaigns.running import TaskPlan
from evomal.engine.procedures import split_procedure
from evomal.errors import InputError
from evomal.methods.baseline import strong_rivals
from evomal.runs.estimates import estimate
from evomal.tasks.recipe import final_recipe
from evomal.tasks.task import Task
from evomal.verdict.contestants import baseline_contestant
from evomal.verdict.trials import ComparedTrial, TrialTrainer
from evomal.verdict.tuning import TUNING_SEEDS, settling_seeds

_TRIED_TOGETHER, _STEPS = 16, (5, 25)
_DECAYS = 6  # settings that a loss usually tries when its weight decay is tuned, too


@dataclass(frozen=True)
class CellEstimate:
    """Cells of one kind: how many there are, how many are finished, and the seconds of each that is left."""

    name: str
    cells: int
    done: int
    seconds: float | None
    """None if it is not known, for the reason in `why`."""
    why: str = ""

    @property
    def left(self) -> float:
        """Seconds of all that are left; 0 if they are not known."""
        return (self.cells - self.done) * (self.seconds or 0.0)


def estimates(plans: Sequence[TaskPlan]) -> list[CellEstimate]:
    """One entry for each task, preset and method, one for each comparison and each figure with trainings."""
    found = []
    for plan in plans:
        groups = list(dict.fromkeys((one.preset, one.method) for one in plan.searches))
        for preset, method in groups:
            found.append(_of_searches(plan, preset, method))
        found.append(_of_comparison(plan))
        found += [_of_figure(plan, figure) for figure in plan.figures]
    return found


def _of_searches(plan: TaskPlan, preset: str, method: str) -> CellEstimate:
    group = [one for one in plan.searches if (one.preset, one.method) == (preset, method)]

    def seconds() -> float:
        return estimate(plan.load(), method=method, settings=group[0].settings, seed=group[0].seed).seconds

    return _estimated(f"{plan.name}/{preset}-{method}", group, seconds)


def _of_comparison(plan: TaskPlan) -> CellEstimate:
    def seconds() -> float:
        return _trainings(plan, plan.load()) * _seconds_of_training(plan, plan.load(), _TRIED_TOGETHER)

    return _estimated(str(plan.comparison), [plan.comparison], seconds)


def _of_figure(plan: TaskPlan, figure: PlannedFigure) -> CellEstimate:
    """The estimate of a figure; of figures that share their trainings, only the first will take that long."""

    def seconds() -> float:
        declared = plan.declared.losses if figure.plan.losses is None else figure.plan.losses
        losses = len(_losses(plan.load(), [name for name in declared if name != STRONG]))
        trainings = (losses + len(plan.comparison.contestants)) * figure.plan.seeds
        each = _seconds_of_training(plan, plan.load(), 1)
        if figure.kind == "representations":
            return trainings / figure.plan.seeds * each
        if figure.kind == "learning-rates":
            steps = final_recipe(plan.load().recipe, plan.comparison.settings).steps
            return trainings * len(figure.plan.rates) * each * (figure.plan.rate_steps or steps) / steps
        return trainings * each

    return _estimated(str(figure), [figure], seconds)


def _estimated(
    name: str, cells: Sequence[PlannedSearch | PlannedComparison | PlannedFigure], seconds: Callable[[], float]
) -> CellEstimate:
    """The estimate of cells of one kind: the mean time of those that are finished, or `seconds` if none is."""
    finished = [cell.made.seconds or 0.0 for one in cells if (cell := one.cell) is not None]
    if finished:
        return CellEstimate(name, len(cells), len(finished), statistics.fmean(finished))
    try:
        return CellEstimate(name, len(cells), 0, seconds())
    except InputError as error:  # such as a dataset that is not here
        return CellEstimate(name, len(cells), 0, None, str(error))


def _losses(task: Task, names: Sequence[str]) -> set[str]:
    """The known losses that are trained with, with the baseline; procedures share the trainings of their losses."""
    found = [name for text in names for name in (strong_rivals(task) if text == STRONG else [text])]
    return {baseline_contestant(task).name, *(str(split_procedure(name)[0]) for name in found)}


def _trainings(plan: TaskPlan, task: Task) -> int:
    """The number of trainings, if no learning rates are added to those asked for and the best ones stay."""
    declared = plan.declared
    losses = len(_losses(task, declared.losses)) + len(plan.comparison.searches)
    settling = len(settling_seeds(declared.seeds)) if declared.tune_lr > 1 else 0
    tried = declared.tune_lr + (_DECAYS if declared.tune_decay else 0)
    tuning = tried * len(TUNING_SEEDS) + settling + declared.seeds if declared.tune_lr else 0
    return losses * (declared.seeds + tuning) + declared.rescale * (losses - 1) * declared.seeds


def _seconds_of_training(plan: TaskPlan, task: Task, together: int) -> float:
    """Seconds per training if that many are trained together, from a few steps."""
    settings = plan.comparison.settings
    (loss,) = baseline_contestant(task).found
    full = TrialTrainer(task, settings=settings)
    count: int = min(together, full.describe()["chunk"])
    taken = []
    for few in _STEPS:
        trainer = TrialTrainer(task, settings=settings.with_changes(final_steps=few, milestones=()))
        trials = [ComparedTrial(loss, task.recipe.lr, seed, test=False) for seed in range(count)]
        trainer.scores(trials)  # compiles and captures
        begin = time.perf_counter()
        trainer.scores(trials)
        taken.append(time.perf_counter() - begin)
    step = max(0.0, taken[1] - taken[0]) / (_STEPS[1] - _STEPS[0]) / count
    steps: int = final_recipe(task.recipe, settings).steps
    return step * steps
