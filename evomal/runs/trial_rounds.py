"""The rounds of trainings before and after the generations: rivals first, and the final at the end."""

import time
from collections.abc import Callable, Sequence

from evomal.engine import Fitness
from evomal.errors import InputError
from evomal.methods import Executor, Failure, Judge
from evomal.methods.rivals import RIVALS, require_baseline, train_rivals
from evomal.runs.candidates import RecordedCandidate, genome_from
from evomal.runs.display import SearchListener
from evomal.runs.finals import Final, final_of, final_seeds, finalists, rivals_of
from evomal.runs.store import RunStore
from evomal.runs.trials import Trial, TrialStage, loss_of_candidate
from evomal.settings import SearchSettings
from evomal.tasks.task import Task


class TrialRounds:
    """Trains what is not of a generation; what the record has is read instead of computed."""

    def __init__(self, task: Task, executor: Executor, judge: Judge, settings: SearchSettings, seed: int) -> None:
        self._task, self._executor, self._judge = task, executor, judge
        self._settings, self._seed = settings, seed
        self._rivals: tuple[Trial, ...] = ()

    @property
    def rivals(self) -> dict[str, float]:
        """What each came to before the first generation."""
        return rivals_of(self._rivals)

    def train_rivals(self, store: RunStore | None, listener: SearchListener | None) -> None:
        """Train with the task's own loss and its rivals as with candidates, with the search's own seed.

        Raises:
            EvomalError: The task's own loss cannot be trained with, as the user's code raises.
            InputError: The metric has no value for the trained model.
        """
        self._rivals = _recorded("rivals", store)
        if not self._rivals:
            names = RIVALS[self._task.kind]
            if listener is not None:
                listener.on_phase("rivals", len(names) * self._steps(1))
            report = None if listener is None else listener.on_steps
            seconds, results = _timed(
                lambda: train_rivals(names, self._executor, self._task.kind, report=report)
            )  # fmt: skip
            require_baseline(names[0], results[0], self._task.metric)
            self._rivals = _trials("rivals", names, self._seed, results, seconds)
            if store is not None:
                store.write_trials(self._rivals)
        if listener is not None:
            listener.on_rivals(self.rivals)

    def hold_final(
        self, candidates: Sequence[RecordedCandidate], store: RunStore | None, listener: SearchListener | None
    ) -> Final | None:
        """Train finalists and rivals with fresh seeds; None where there is to be no final, or nobody to take part."""
        names = list(self.rivals)
        chosen = finalists(candidates, self._settings.finalists, without=names)
        if not chosen:
            return None
        losses = [*names, *map(loss_of_candidate, chosen)]
        seeds = final_seeds(self._settings.final_seeds, self._seed)
        trials = list(_recorded("final", store))
        planned = [(seed, loss) for seed in seeds for loss in losses]
        if [(trial.seed, trial.loss) for trial in trials] != planned[: len(trials)] or len(trials) % len(losses):
            place = "" if store is None else f"{store.path}: "
            raise InputError(f"{place}its final is not that of the recorded candidates, so it cannot go on")
        missing = seeds[len(trials) // len(losses) :]
        if listener is not None and missing:
            each = self._steps(len(chosen)) + len(names) * self._steps(1)
            listener.on_phase("final", len(missing) * each)
        for seed in missing:
            seconds, results = _timed(lambda: self._results(names, chosen, seed, listener))  # noqa: B023
            found = _trials("final", losses, seed, results, seconds)
            if store is not None:
                store.write_trials(found)
            trials += found
        return final_of(chosen, trials, seeds=len(seeds))

    def _results(
        self, names: Sequence[str], chosen: Sequence[RecordedCandidate], seed: int, listener: SearchListener | None
    ) -> list[Fitness | Failure]:
        report = None if listener is None else listener.on_steps
        learned = [(genome_from(row.genome), row.weights) for row in chosen]
        return [
            *train_rivals(names, self._executor, self._task.kind, seed=seed, report=report),
            *self._judge.trained_again(learned, seed=seed, report=report),
        ]

    def _steps(self, losses: int) -> int:
        return self._executor.steps(losses)["evaluate"]


def _recorded(stage: TrialStage, store: RunStore | None) -> tuple[Trial, ...]:
    return () if store is None else tuple(trial for trial in store.trials() if trial.stage == stage)


def _trials(
    stage: TrialStage, losses: Sequence[str], seed: int, results: Sequence[Fitness | Failure], seconds: float
) -> tuple[Trial, ...]:
    each = seconds / len(losses)
    pairs = zip(losses, results, strict=True)
    return tuple(Trial.of(stage, loss, seed, result, seconds=each) for loss, result in pairs)


def _timed(work: Callable[[], list[Fitness | Failure]]) -> tuple[float, list[Fitness | Failure]]:
    begin = time.perf_counter()
    results = work()
    return time.perf_counter() - begin, results
