"""How long the cells of a campaign will take: as long as finished ones like them, or by a few steps of each."""

import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass

from evomal.campaigns.declaration import STRONG
from evomal.campaigns.running import TaskPlan
from evomal.errors import InputError
from evomal.methods.rivals import strong_rivals
from evomal.runs.estimates import estimate
from evomal.tasks.recipe import final_recipe
from evomal.tasks.task import Task
from evomal.verdict.contestants import baseline_contestant
from evomal.verdict.trials import ComparedTrial, TrialTrainer
from evomal.verdict.tuning import TUNING_SEEDS

_TRIED_TOGETHER, _STEPS = 16, (5, 25)


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
    """One entry for each task, preset and method, and one for each comparison."""
    found = []
    for plan in plans:
        groups = list(dict.fromkeys((one.preset, one.method) for one in plan.searches))
        for preset, method in groups:
            found.append(_of_searches(plan, preset, method))
        found.append(_of_comparison(plan))
    return found


def _of_searches(plan: TaskPlan, preset: str, method: str) -> CellEstimate:
    group = [one for one in plan.searches if (one.preset, one.method) == (preset, method)]
    finished = [cell for one in group if (cell := one.cell) is not None]
    name = f"{plan.name}/{preset}-{method}"
    if finished:
        return CellEstimate(
            name, len(group), len(finished), statistics.fmean(one.made.seconds or 0.0 for one in finished)
        )
    try:
        expected = estimate(plan.load(), method=method, settings=group[0].settings, seed=group[0].seed)
    except InputError as error:  # such as a dataset that is not here
        return CellEstimate(name, len(group), 0, None, str(error))
    return CellEstimate(name, len(group), 0, expected.seconds)


def _of_comparison(plan: TaskPlan) -> CellEstimate:
    finished, name = plan.comparison.cell, str(plan.comparison)
    if finished is not None:
        return CellEstimate(name, 1, 1, finished.made.seconds)
    try:
        task = plan.load()
        return CellEstimate(name, 1, 0, _trainings(plan, task) * _seconds_of_training(plan, task))
    except InputError as error:
        return CellEstimate(name, 1, 0, None, str(error))


def _trainings(plan: TaskPlan, task: Task) -> int:
    """The number of trainings, if no learning rates are added to those asked for."""
    declared = plan.declared
    known = sum(len(strong_rivals(task)) - 1 if name == STRONG else 1 for name in declared.losses)
    losses = 1 + known + len(plan.comparison.searches)
    tuning = declared.tune_lr * len(TUNING_SEEDS) + declared.seeds if declared.tune_lr else 0
    return losses * (declared.seeds + tuning) + declared.rescale * (losses - 1) * declared.seeds


def _seconds_of_training(plan: TaskPlan, task: Task) -> float:
    """Seconds of one training among many, from a few steps."""
    settings = plan.comparison.settings
    (loss,) = baseline_contestant(task).found
    full = TrialTrainer(task, settings=settings)
    count: int = min(_TRIED_TOGETHER, full.describe()["chunk"])
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
