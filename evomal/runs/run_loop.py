"""The search, from the seed to the best loss: a record that is its own checkpoint (EvoMAL, figure 1)."""

import math
import os
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evomal.engine.task_content import task_content
from evomal.errors import EvomalError, InputError
from evomal.files import remove_unfinished
from evomal.losses import save_loss
from evomal.losses.contract import Provenance
from evomal.methods import Method, method_named
from evomal.methods.archive import Candidate
from evomal.methods.outcomes import Outcome, State
from evomal.methods.proposals import Proposal
from evomal.progress import StageStepsDone
from evomal.runs.candidates import RecordedCandidate, genome_from, genome_text
from evomal.runs.canonical import Difference, versions
from evomal.runs.display import ProgressDisplay, SearchListener, stop_check
from evomal.runs.finals import Final, final_of
from evomal.runs.preparation import Prepared, prepared
from evomal.runs.results import Best, Generation, SearchResult, summarised
from evomal.runs.store import RECORD_NAME, RunStore
from evomal.runs.trial_rounds import TrialRounds
from evomal.settings import WORKPLACE, SearchSettings
from evomal.tasks.task import Task
from evomal.threads import thread_count

BEST_NAME = "best.json"
_SHOWN_FAILURES = 3

Callback = Callable[[Generation], None]


def search(
    task: Task | Sequence[Task],
    *,
    method: str = "evomal",
    preset: str = "quick",
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    settings: SearchSettings | None = None,
    callback: Callback | None = None,
    progress: bool = False,
    listener: SearchListener | None = None,
    source: Mapping[str, Any] | None = None,
    force: bool = False,
    **changes: Any,
) -> SearchResult:
    """Search for a loss; with a folder the search is recorded there, and goes on where that record ends.

    The same seed and settings give the same result, whether interrupted or not. Before the first generation the task's
    own loss and its rivals are trained as candidates are. With `finalists` (in `quick`), the best candidates and the
    rivals are trained again with fresh seeds at the end, and the one of least mean is the best; without (in `paper`)
    the best is the candidate whose one training came out best.

    Args:
        task: The task to learn a loss for, or several of one kind.
        method: One of `evomal methods`.
        preset: `quick` or `paper`; what `changes` are changes to.
        seed: Fixes everything that is drawn.
        folder: Where the search is recorded; without one it is not.
        settings: All settings at once, instead of a preset with changes.
        callback: Called after each generation.
        progress: Show a progress bar with the time left on standard error; lines where that is no terminal.
        listener: Called at every step, instead of `progress`.
        source: Recorded: whatever the caller needs to have the tasks again.
        force: Go on with a record although what it was begun with differs. What comes then need not be what an
            uninterrupted run would have found, and the record says so.
        **changes: Settings that differ from the preset's.

    Returns:
        The best loss, the rivals beside it, and what each generation came to.

    Raises:
        InputError: An argument or setting breaks a rule, the folder holds another search, or the metric has no finite
            value for the trained baseline.
        EvomalError: The model or the metric raises in the training of the baseline or for every candidate; what it
            raised is the `__cause__`.

    Example:
        >>> result = evomal.search(evomal.load_task("diabetes", "mlp:hidden=64"), progress=True)  # doctest: +SKIP
        >>> result.best.formula(), result.best.mean, result.rivals["mse"]  # doctest: +SKIP
    """
    if progress and listener is None:
        with ProgressDisplay() as shown:
            return search(
                task, method=method, preset=preset, seed=seed, folder=folder, settings=settings, callback=callback,
                listener=shown, source=source, force=force, **changes,
            )  # fmt: skip
    chosen = method_named(method)
    resolved = SearchSettings.given(settings, preset, changes)
    say = None if listener is None else lambda sentence: listener.say(sentence)
    with thread_count(resolved.threads), prepared(task, chosen, resolved, seed, say, stop_check(listener)) as parts:
        run = _Run(parts, chosen, resolved, seed, source)
        if folder is None:
            return run.to_the_end(None, callback, listener)
        with _record(Path(folder), run.description(), force=force) as store:
            return run.to_the_end(store, callback, listener)


class _Run:
    """A strategy and a judge, taking turns."""

    def __init__(
        self, parts: Prepared, method: Method, settings: SearchSettings, seed: int, source: Mapping[str, Any] | None
    ) -> None:
        self._tasks, self._executor = parts.tasks, parts.executor
        self._strategy, self._judge = parts.strategy, parts.judge
        self._method, self._settings, self._seed, self._source = method, settings, seed, source
        self._rounds = TrialRounds(parts.tasks[0], parts.executor, parts.judge, settings, seed)
        self._recorded: list[RecordedCandidate] = []
        self._final: Final | None = None

    def description(self) -> dict[str, Any]:
        """Everything that can change a float, for the record."""
        return {
            **self._executor.record(),
            "method": self._method.name,
            "seed": self._seed,
            "task": {str(number): task_content(task) for number, task in enumerate(self._tasks)},
            "settings": self._settings.model_dump(mode="json", exclude={*BUDGETS, *WORKPLACE}),
            "budgets": self._settings.model_dump(mode="json", include=BUDGETS),
            "workplace": self._settings.model_dump(mode="json", include={*WORKPLACE}),
            "source": None if self._source is None else dict(self._source),
            "versions": versions(),
        }

    def to_the_end(
        self, store: RunStore | None, callback: Callback | None, listener: SearchListener | None
    ) -> SearchResult:
        begin = time.perf_counter()
        if store is not None:
            self._replay(store)
        if listener is not None:
            steps = sum(self._executor.steps(self._strategy.population).values())
            listener.on_start(generations=self._strategy.generations, steps=steps, recorded=self._history())
        self._rounds.train_rivals(store, listener)
        ending = complete = None if store is None else store.ending
        while ending is None and not self._strategy.finished:
            ending = self._spent(time.perf_counter() - begin)
            if ending is None:
                self._turn(store, None if listener is None else listener.on_steps)
                for call in (callback, None if listener is None else listener.on_generation):
                    if call is not None:
                        call(self._history()[-1])
        self._hold_final(store, listener)
        if ending is None:
            ending = self._strategy.ending
            if store is not None:
                store.finish(ending)
        elif complete is None and self._final is not None:
            ending = f"{ending}; the final was held all the same"
        folder = None if store is None else store.path.parent
        archive = self._judge.archive
        forced = () if store is None else tuple(entry.differences for entry in store.forced)
        seconds = time.perf_counter() - begin
        metric = self._tasks[0].metric
        return SearchResult(
            self._best(), self._history(), archive.front, ending, folder, seconds, forced, self._rounds.rivals,
            self._final, metric.name, metric.cost(1.0) < 0, _failures(self._recorded),
        )  # fmt: skip

    def _hold_final(self, store: RunStore | None, listener: SearchListener | None) -> None:
        self._final = self._rounds.hold_final(self._recorded, store, listener)
        if self._final is None:
            return
        if store is not None:
            self._save_best(store.path.parent)
        if listener is not None:
            listener.on_final(self._final)

    def _turn(self, store: RunStore | None, report: StageStepsDone | None) -> None:
        generation = self._strategy.generation
        proposals = self._strategy.ask()
        before = None if self._final is not None else self._judge.archive.best
        self._final = None  # of a search that a budget had ended
        outcomes = self._judge.outcomes(proposals, generation=generation, report=report)
        rows = _rows(generation, proposals, outcomes)
        if store is not None:
            store.write_chunk(generation, rows)
            if self._judge.archive.best != before:
                self._save_best(store.path.parent)
        self._recorded += rows
        self._strategy.tell(outcomes)

    def _replay(self, store: RunStore) -> None:
        """Tell what is recorded instead of computing it; what is proposed must be what was."""
        recorded: dict[int, list[RecordedCandidate]] = {}
        for candidate in store.candidates():
            recorded.setdefault(candidate.generation, []).append(candidate)
        if len(recorded) > self._strategy.generations:
            raise InputError(
                f"{store.path}: holds {len(recorded)} generations, so that generations must be at least as many, "
                f"but got {self._strategy.generations}"
            )
        for generation in sorted(recorded):
            proposals = self._strategy.ask()
            rows = recorded[generation]
            if [row.genome for row in rows] != [genome_text(proposal.genome) for proposal in proposals]:
                raise InputError(
                    f"{store.path}: generation {generation} is not what seed {self._seed} proposes, so it cannot go on"
                )
            outcomes = [row.outcome() for row in rows]
            self._judge.remember(proposals, outcomes, generation=generation)
            self._strategy.tell(outcomes)
            self._recorded += rows
        self._final = final_of(self._recorded, store.trials(), seeds=self._settings.final_seeds)
        remove_unfinished(store.path.with_name(BEST_NAME))
        if recorded:
            self._save_best(store.path.parent)  # killed between record and file, it may be behind

    def _spent(self, seconds: float) -> str | None:
        """Why no further generation is begun, if a budget is used up."""
        settings = self._settings
        if settings.max_time is not None and seconds >= settings.max_time:
            return f"the time of {settings.max_time:g} s is used up"
        # Also those whose training diverged: it was paid for.
        evaluated = sum("evaluate" in row.seconds and row.origin != "elite" for row in self._recorded)
        if settings.max_evaluations is not None and evaluated >= settings.max_evaluations:
            return f"{evaluated} candidates were evaluated, and {settings.max_evaluations} are allowed"
        best = self._judge.archive.best
        if settings.patience is not None:
            waited = self._strategy.generation - 1 - (-1 if best is None else best.generation)
            if waited >= settings.patience:
                return f"nothing better was found for {waited} generation{'' if waited == 1 else 's'}"
        return None

    def _history(self) -> tuple[Generation, ...]:
        return summarised(self._recorded)

    def _best(self) -> Best | None:
        found: Candidate | RecordedCandidate | None = self._judge.archive.best
        scores: tuple[float, ...] = ()
        if self._final is not None:
            found, scores = self._final.winner[0], self._final.winner[1].values
        if found is None:
            return None
        genome = genome_from(found.genome) if isinstance(found, RecordedCandidate) else found.genome
        kind, activation = self._tasks[0].kind, self._executor.record()["activation"]
        value = self._tasks[0].metric.cost(found.fitness)  # a cost's cost is the metric itself
        units = {task.units for task in self._tasks}
        return Best(
            genome, found.weights, found.fitness, value, found.generation, kind, activation,
            units.pop() if len(units) == 1 else None, scores,
        )  # fmt: skip

    def _save_best(self, folder: Path) -> None:
        best = self._best()
        if best is None:
            return
        task = self._tasks[0]
        names = " + ".join(one.name for one in self._tasks)
        provenance: Provenance = {
            "task": names, "model": str(task.record.get("model", "own")), "method": self._method.name,
            "seed": self._seed, "fitness": best.fitness, "metric": task.metric.name, "value": best.value,
            "chosen": "the best of one training each",
        }  # fmt: skip
        if self._final is not None:
            count = len(self._final.candidates)
            provenance["chosen"] = f"the best mean of {self._final.seeds_in_words} among {count} finalists"
            if math.isfinite(best.mean):
                provenance["mean"] = task.metric.cost(best.mean)
        try:
            save_loss(best.loss(), folder / BEST_NAME, provenance=provenance)
        except InputError as error:  # the folder is the run's own by now, so what is wrong with it is no bad input
            raise EvomalError(str(error)) from None


BUDGETS = {"max_time", "max_evaluations", "patience", "generations"}
"""Settings that end a search sooner or later but change nothing that is computed: they may differ on resuming."""


_FREE = {"budgets", "source", "workplace"}
_RESOLVED = {"settings.threads"}
"""Settings whose meaning is recorded beside them: left open they are the same as named."""


def _record(folder: Path, description: dict[str, Any], *, force: bool) -> RunStore:
    """The folder's record: a new one, or the one that is there if it is of this very search."""
    if not (folder / RECORD_NAME).exists():
        return RunStore.create(folder, description)
    store = RunStore.open(folder)
    try:
        differing = _that_matter(store.differences(description))
        if differing and not force:
            raise InputError(f"{store.path}: is the record of another search: {'; '.join(map(str, differing))}")
        if differing and store.ending is None:
            _force(store, differing)
    except BaseException:
        store.close()
        raise
    return store


def _that_matter(differing: Sequence[Difference]) -> list[Difference]:
    """Those that can change what is found, each once: some stand as a setting and as what became of it."""
    keys = {entry.key for entry in differing}
    return [
        entry
        for entry in differing
        if entry.key.split(".")[0] not in _FREE
        and entry.key not in _RESOLVED
        and entry.key.removeprefix("settings.") not in keys - {entry.key}
    ]


def _force(store: RunStore, differing: Sequence[Difference]) -> None:
    """Note what differs, unless it is what was noted last."""
    text = "; ".join(map(str, differing))
    if not store.forced or store.forced[-1].differences != text:
        store.force(differing)


def _failures(candidates: Sequence[RecordedCandidate]) -> dict[str, int]:
    failed = Counter(candidate.sentence for candidate in candidates if candidate.state is State.FAILED)
    return dict(failed.most_common(_SHOWN_FAILURES))


def _rows(generation: int, proposals: Sequence[Proposal], outcomes: Sequence[Outcome]) -> list[RecordedCandidate]:
    pairs = enumerate(zip(proposals, outcomes, strict=True))
    return [RecordedCandidate.of(generation, index, proposal, outcome) for index, (proposal, outcome) in pairs]
