"""The headroom of a task without a search: what a learned loss would have to beat."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from evomal.checks import seed_number
from evomal.errors import InputError
from evomal.methods.baseline import BASELINE
from evomal.methods.several_tasks import common_lr, shown_fitness, with_rule
from evomal.runs.display import with_display
from evomal.runs.executors import check_jobs
from evomal.runs.finals_trainer import FinalsTrainer
from evomal.runs.measured_rivals import Headroom
from evomal.runs.preparation import prepared
from evomal.settings import SearchSettings
from evomal.tasks.task import Task
from evomal.threads import thread_count


def headroom(
    task: Task | Sequence[Task], *, preset: str = "quick", seed: int = 0, settings: SearchSettings | None = None,
    progress: bool = False, jobs: int = 1, on_plan: Callable[[Mapping[str, Any]], None] | None = None,
    **changes: Any,
) -> Headroom:  # fmt: skip
    """Measure the task's own loss and the known losses that fit it, each at several learning rates.

    They are trained as the candidates of a search are, on every rung; on the longest with at least four seeds.

    Args:
        task: The task, or several of one kind: costs are then those that the setting `across_tasks` makes of theirs.
        preset: `quick` or `thorough`, the settings that `changes` apply to.
        seed: Determines the seeds and splits of the trainings.
        settings: All settings at once, instead of a preset with changes.
        progress: Whether to show the progress on standard error.
        jobs: The number of processes on this machine that the trainings are divided among, with the same results (on
            a GPU with `deterministic`). Unless the setting `threads` is given, they also divide the threads of this
            process.
        on_plan: Called before anything is trained, with what was decided by rule: the device, the threads, how models
            are stacked.
        **changes: Settings that differ from the preset.

    Returns:
        The costs of each loss, the best loss with its lead, and the noise of that lead. Print it to read them.

    Raises:
        InputError: A setting breaks a rule, or the settings try one learning rate only.

    Example:
        >>> import evomal
        >>> task = evomal.load_task("diabetes", model="mlp:hidden=4")
        >>> found = evomal.headroom(task, training_steps=8, device="cpu")
        >>> found.baseline
        'mse'
    """
    resolved = SearchSettings.given(settings, preset, changes).with_changes(final_share=0.0)  # there is no final
    if not resolved.tried_rates:
        raise InputError("tried_rates must be at least 1 to measure headroom but got 0")
    check_jobs(jobs, resolved)
    with (
        with_display(progress, None) as shown,
        thread_count(resolved.threads),
        prepared(task, BASELINE, resolved, seed_number(seed), shown, jobs) as parts,
    ):
        if on_plan is not None:
            on_plan(parts.executor.record())
        trainer = FinalsTrainer(parts.tasks, parts.executor, parts.evaluator, parts.context, None, shown)
        trainer.train_rivals()
        found = trainer.headroom
        assert found is not None
        metric = shown_fitness(with_rule(resolved, parts.tasks), parts.tasks)
        rows = trainer.shared_rows.get(parts.tasks[0].name) if len(parts.tasks) == 1 else None
        return replace(found, metric=metric, lr=common_lr(resolved, parts.tasks), rows=rows)
