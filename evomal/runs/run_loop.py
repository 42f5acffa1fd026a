"""The search, from the seed to the best loss: a record that is its own checkpoint (EvoMAL, figure 1)."""

import math
import os
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from evomal.checks import path_to, seed_number
from evomal.engine.resolve import class_priors
from evomal.engine.task_data import task_content
from evomal.errors import EvomalError, InputError
from evomal.expression import Expression
from evomal.expression.variation import scaled
from evomal.files import remove_unfinished
from evomal.forest.terminals import uses_priors
from evomal.losses import save_loss
from evomal.losses.catalogue import specified_loss
from evomal.losses.loss import Provenance
from evomal.losses.priors import PriorLoss
from evomal.methods import Method, method_named
from evomal.methods.baseline import BASELINE
from evomal.methods.candidates import Candidate
from evomal.methods.several_tasks import common_lr, shown_fitness
from evomal.progress import StageStepsDone
from evomal.runs.callbacks import Callback, Callbacks, SearchListener
from evomal.runs.canonical import canonical, parsed, versions
from evomal.runs.display import with_display
from evomal.runs.executors import check_jobs
from evomal.runs.finals import Final, final_of
from evomal.runs.finals_trainer import FinalsTrainer
from evomal.runs.generations import Generation, reasons_of_failures, summarised
from evomal.runs.leads import Scores
from evomal.runs.lock import stop_if_requested, withdraw_stop
from evomal.runs.preparation import Prepared, prepared
from evomal.runs.recorded_run import Run, RunState
from evomal.runs.results import Best, SearchResult
from evomal.runs.resuming import as_recorded, note_changes, opened_record, recorded_settings
from evomal.runs.store import BEST_NAME, RunStore
from evomal.runs.trials_of_tasks import combined
from evomal.settings import SearchSettings
from evomal.tasks.recipe import final_recipe
from evomal.tasks.task import Task
from evomal.text import plural, short_repr, shorten
from evomal.threads import thread_count
from evomal.users_code import described


def search(
    task: Task | Sequence[Task],
    *,
    method: str = "evomal",
    preset: str = "quick",
    seed: int = 0,
    folder: str | os.PathLike[str] | None = None,
    settings: SearchSettings | None = None,
    callback: Callback | Sequence[Callback] | None = None,
    progress: bool = False,
    listener: SearchListener | None = None,
    source: Mapping[str, Any] | None = None,
    force: bool = False,
    jobs: int = 1,
    **changes: Any,
) -> SearchResult:
    """Search for a loss function for a task.

    With a folder the search is recorded there. If the folder holds this search already, it is resumed where its record
    ends. The same seed and settings give the same result, whether the search was interrupted or not.

    Before the first generation, the task's own loss (the baseline) and its rivals are trained as candidates are. With
    `finalists` (all presets but `paper`), the best candidates and the rivals are trained again with fresh seeds at the
    end, and the candidate with the lowest mean is the result; without, the candidate with the best single training is.

    Args:
        task: The task to learn a loss for, or several tasks of one kind.
        method: The name of a method: see `evomal methods`.
        preset: `quick`, `thorough` or `paper`, the settings that `changes` apply to.
        seed: The seed of everything that is drawn.
        folder: The folder to record the search in; None records nothing.
        settings: All settings at once, instead of a preset with changes.
        callback: A function that is called with each generation when it is complete, a `SearchCallback`, such as the
            loggers in `evomal.integrations.loggers`, or a list of them. If one returns True, no further generation is
            started; the search can be resumed.
        progress: Whether to show the progress and the time left on standard error.
        listener: Called at every step, instead of `progress`.
        source: Recorded as it is: what the caller needs to make the tasks again.
        force: Resume although settings or versions differ from the record. The result may then differ from that of an
            uninterrupted search, and the record says so.
        jobs: The number of processes on this machine that candidates, rivals and finals are divided among, with the
            same results (on a GPU with `deterministic`). Unless the setting `threads` is given, they also divide the
            threads of this process.
        **changes: Settings that differ from the preset; `evomal.settings.describe` lists all settings.

    Returns:
        The best loss, the scores of its rivals, and a summary of each generation. Print it to see them.

    Raises:
        InputError: An argument or setting breaks a rule, the folder holds another search or is in use, or the metric
            has no finite value for the trained baseline.
        EvomalError: The model or the metric raises an error in the training of the baseline or for every candidate;
            that error is the `__cause__`.
        StoppedError: Somebody asked the search to stop, as the page of `evomal serve` can; call again to resume it.

    Example:
        >>> import evomal
        >>> task = evomal.load_task("diabetes", model="mlp:hidden=8")
        >>> tiny = {"population": 4, "generations": 1, "meta_steps": 1, "training_steps": 5, "filter_steps": 5}
        >>> result = evomal.search(task, method="taylorglo", preset="paper", device="cpu", **tiny)
        >>> list(result.rivals)
        ['mse', 'mae', 'huber']
    """
    chosen = method_named(method)
    seed = seed_number(seed)
    callbacks = Callbacks(callback)
    place = None if folder is None else path_to("folder", folder)
    given: Any = source
    if given is not None and not isinstance(given, Mapping):
        raise InputError(f"source must be a dictionary but got {short_repr(given)}")
    resolved = SearchSettings.given(settings, preset, changes)
    check_jobs(jobs, resolved)
    if place is not None:
        resolved = as_recorded(resolved, place, jobs=jobs)
    with (
        with_display(progress, listener) as shown,
        thread_count(resolved.threads),
        prepared(task, chosen, resolved, seed, shown, jobs) as parts,
    ):
        running = _Search(parts, chosen, source)
        if place is None:
            return running.run(None, callbacks, shown)
        with opened_record(place, running.description(), force=force) as store:
            return running.run(store, callbacks, shown)


class _Search:
    """One search: its strategy and evaluator take turns, and every turn is recorded."""

    def __init__(self, parts: Prepared, method: Method, source: Mapping[str, Any] | None) -> None:
        self._tasks, self._executor = parts.tasks, parts.executor
        self._strategy, self._evaluator, self._context = parts.strategy, parts.evaluator, parts.context
        self._settings, self._seed = parts.context.settings, parts.context.seed
        self._method, self._source = method, source
        self._shown = shown_fitness(self._settings, self._tasks)
        self._store: RunStore | None = None
        self._folder: Path | None = None
        self._candidates: list[Candidate] = []
        self._final: Final | None = None

    def description(self) -> dict[str, Any]:
        """Everything that can change a computed number, for the record."""
        engine = self._executor.record()
        recorded = recorded_settings(self._settings)
        return {
            **engine,
            "method": self._method.name,
            "seed": self._seed,
            "task": {str(number): task_content(task) for number, task in enumerate(self._tasks)},
            **recorded,
            "settings": {**recorded["settings"], "optimizer": engine["optimizer"]},
            "source": None if self._source is None else dict(self._source),
            "versions": versions(),
        }

    def run(self, store: RunStore | None, callbacks: Callbacks, listener: SearchListener | None) -> SearchResult:
        """Run the search to its end, and call `on_end` of the callbacks however it ends."""
        self._store, self._folder = store, None if store is None else store.path.parent
        try:
            result = self._replay_and_compute(callbacks, listener)
        except BaseException as failure:
            try:
                callbacks.on_end(None)
            except BaseException as error:
                failure.add_note(f"a callback failed in on_end, too: {described(error)}")
            raise
        callbacks.on_end(result)
        return result

    def _replay_and_compute(self, callbacks: Callbacks, listener: SearchListener | None) -> SearchResult:
        """Replay what is recorded, then compute the rest."""
        begin = time.perf_counter()
        withdraw_stop(self._folder)
        if self._store is not None:
            self._replay(self._store)
            note_changes(self._store, self.description(), is_finished=self._strategy.finished)
        callbacks.on_start(self._as_run())
        trainer = FinalsTrainer(self._tasks, self._executor, self._evaluator, self._context, self._store, listener)
        if listener is not None:
            listener.on_start(
                generations=self._strategy.generations,
                steps=self._steps_of_generation(),
                final_steps=0 if self._method is BASELINE else trainer.steps_of_final(),
                recorded=self._history(),
                metric=self._shown,
            )
        rivals = trainer.train_rivals()
        ending = complete = None if self._store is None else self._store.ending
        if complete is None:
            ending = self._compute_generations(begin, callbacks, listener)
            stop_if_requested(self._folder)
        self._final = trainer.train_finalists(self._candidates, rivals)
        if self._final is not None:
            self._save_best()
            if listener is not None:
                listener.on_final(self._final)
        if ending is None:
            ending = self._strategy.ending
            if self._store is not None:
                self._store.finish(ending)
        elif complete is None and self._final is not None:
            ending = f"{ending}; the final was run nevertheless"
        withdraw_stop(self._folder)  # a request after the last generation came too late
        by_task, headroom = trainer.by_task(self._final), trainer.headroom
        is_complete = self._strategy.finished
        run = self._as_run(
            state=RunState.COMPLETE if is_complete else RunState.INTERRUPTED,
            ending=ending if is_complete else None, rivals=rivals, headroom=headroom, final=self._final,
            by_task=by_task,
        )  # fmt: skip
        return SearchResult(
            best=self._best(),
            history=self._history(),
            front=self._evaluator.archive.front,
            ending=ending,
            folder=self._folder,
            seconds=time.perf_counter() - begin,
            forced=run.forced,
            rivals=rivals,
            final=self._final,
            metric=self._shown.name,
            higher_is_better=self._shown.higher_is_better,
            by_task=by_task,
            priors=self._priors() if self._advises_priors else None,
            failures=reasons_of_failures(self._candidates),
            headroom=headroom,
            run=run,
            final_rows={task.name: len(task.final) for task in self._tasks if task.final is not None},
            reused_rows=trainer.reused_rows,
        )

    def _compute_generations(self, begin: float, callbacks: Callbacks, listener: SearchListener | None) -> str | None:
        """Compute generations until the strategy is finished; returns why they ended early, if they did."""
        while not self._strategy.finished:
            if (ending := self._exhausted_budget(time.perf_counter() - begin)) is not None:
                return ending
            stop_if_requested(self._folder)
            self._compute_generation(None if listener is None else listener.on_steps)
            generation = self._history()[-1]
            is_ended = callbacks.on_generation(generation)
            if listener is not None:
                listener.on_generation(generation)
            if is_ended and not self._strategy.finished:
                return "a callback ended it"
        return None

    def _as_run(self, **more: Any) -> Run:
        """The search so far, as a `Run`."""
        store = self._store
        found = {
            "folder": self._folder or Path(),
            "state": RunState.RUNNING,
            "settings": parsed(canonical(self.description())),
            "candidates": tuple(self._candidates),
            "forced": () if store is None else tuple(entry.differences for entry in store.forced),
            "own_kind": self._tasks[0].kind if store is None else None,
        }
        return Run(**{**found, **more})

    def _steps_of_generation(self) -> int:
        """The most steps of a generation, for a progress bar."""
        steps, ladder = self._executor.steps(self._strategy.population), self._context.ladder
        if ladder is not None:
            steps["evaluate"] = ladder.steps(self._strategy.population) * len(self._tasks)
        return sum(steps.values())

    def _compute_generation(self, report: StageStepsDone | None) -> None:
        """Evaluate and record one generation."""
        archive = self._evaluator.archive
        # The final of a search that a budget had ended is outdated by the next generation.
        before = None if self._final is not None else archive.best
        self._final = None
        candidates = self._evaluator.evaluate(self._strategy.ask(), report=report)
        if self._store is not None:
            self._store.write_chunk(self._strategy.generation, candidates)
            if archive.best != before:
                self._save_best()
        self._candidates += candidates
        self._strategy.tell(candidates)

    def _replay(self, store: RunStore) -> None:
        """Tell the strategy what is recorded; it must propose the candidates that were recorded."""
        recorded: dict[int, list[Candidate]] = {}
        for candidate in store.candidates():
            recorded.setdefault(candidate.generation, []).append(candidate)
        if len(recorded) > self._strategy.generations:
            raise InputError(
                f"{store.path}: generations must be at least {len(recorded)}, the number already recorded, but got "
                f"{self._strategy.generations}"
            )
        for generation, candidates in sorted(recorded.items()):
            asked = self._strategy.ask()
            if [candidate.genome for candidate in candidates] != [candidate.genome for candidate in asked]:
                raise InputError(
                    f"{store.path}: generation {generation} is not what seed {self._seed} proposes, so the run cannot "
                    "be resumed"
                )
            self._evaluator.remember(candidates)
            self._strategy.tell(candidates)
            self._candidates += candidates
        trials, lr = combined(store.trials(), self._settings.across_tasks), common_lr(self._settings, self._tasks)
        self._final = final_of(self._candidates, trials, seeds=self._settings.final_seeds, lr=lr)
        remove_unfinished(store.path.with_name(BEST_NAME))
        if recorded:
            self._save_best()  # the process may have been killed between record and file

    def _exhausted_budget(self, seconds: float) -> str | None:
        """The sentence for the budget that is used up; None if there is none."""
        settings = self._settings
        if settings.max_time is not None and seconds >= settings.max_time:
            return f"the time of {settings.max_time:g} s is used up"
        # Trainings that diverged count, too: they were paid for.
        evaluated = sum("evaluate" in one.seconds and not one.is_carried for one in self._candidates)
        if settings.max_evaluations is not None and evaluated >= settings.max_evaluations:
            return f"max_evaluations is {settings.max_evaluations}, reached with {plural(evaluated, 'candidate')}"
        if settings.patience is not None:
            best = self._evaluator.archive.best
            waited = self._strategy.generation - 1 - (-1 if best is None else best.generation)
            if waited >= settings.patience:
                return f"nothing better was found for {plural(waited, 'generation')}"
        return None

    def _history(self) -> tuple[Generation, ...]:
        return summarised(self._candidates)

    def _best(self) -> Best | None:
        before = self._evaluator.archive.best, Scores(())
        found, scores = before if self._final is None else self._final.winner
        if found is None:
            return None
        units = {task.units for task in self._tasks}
        has_priors = isinstance(found.form, Expression) and uses_priors(found.form)
        genome, weights = found.form, found.weights
        if isinstance(genome, Expression):
            genome, weights = scaled(genome, weights, found.factor)
        own = common_lr(self._settings, self._tasks)
        rate = found.rate if self._final is None else self._final.rates.get(found.place, found.rate)
        lr = None if own is None else own * rate
        return Best(
            genome=genome, weights=weights, lr=lr, rate=rate, fitness=found.fitness,
            value=self._shown.value(found.fitness), generation=found.generation, kind=self._tasks[0].kind,
            activation=self._executor.record()["activation"], units=units.pop() if len(units) == 1 else None,
            priors=self._priors() if has_priors else None, scores=scores.values,
            provenance=self._provenance(found.fitness, lr, scores),
        )  # fmt: skip

    @property
    def _advises_priors(self) -> bool:
        """Whether the final advises a known loss that depends on the shares of the classes."""
        kind = self._tasks[0].kind
        return self._final is not None and isinstance(specified_loss(self._final.advised, kind=kind), PriorLoss)

    def _priors(self) -> tuple[float, ...] | None:
        """The shares of the classes in the training rows, if all tasks have the same."""
        found = {tuple(class_priors(task).tolist()) for task in self._tasks}
        return found.pop() if len(found) == 1 else None

    def _provenance(self, fitness: float, lr: float | None, scores: Scores) -> Provenance:
        """What the best loss and its file say about this search."""
        provenance: Provenance = {
            "task": " + ".join(one.name for one in self._tasks),
            "model": str(self._tasks[0].record.get("model", "own")),
            "method": self._method.name,
            "seed": self._seed,
            "fitness": fitness,
            "metric": self._shown.name,
            "value": self._shown.value(fitness),
            "chosen": "the best of one training each",
        }
        if lr is not None:
            provenance["learning_rate"] = lr
        if len(recipes := {final_recipe(task.recipe, self._settings).summary for task in self._tasks}) == 1:
            provenance["recipe"] = shorten(recipes.pop(), 200)
        if self._final is not None:
            finalists = f"{len(self._final.candidates)} finalists"
            provenance["chosen"] = f"the {self._final.rank} mean of {self._final.seeds_in_words} among {finalists}"
            provenance["final"] = shorten(self._final.verdict(self._shown.name), 200)
            provenance |= {"steps": self._final.steps} if self._final.steps else {}
            if math.isfinite(scores.mean):
                provenance["mean"] = self._shown.value(scores.mean)
        return provenance

    def _save_best(self) -> None:
        """Write the loss file, if the search has a folder and a best loss."""
        if self._folder is None or (best := self._best()) is None:
            return
        try:
            save_loss(best.loss(), self._folder / BEST_NAME)
        except InputError as error:  # the folder belongs to the run, so a problem with it is not bad input
            raise EvomalError(str(error)) from None
