"""The search, from the seed to the best loss: a record that is its own checkpoint (EvoMAL, Algorithm 1)."""

import os
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from evomal.engine import Engine, EngineSettings
from evomal.engine.engine import Report
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.losses import ExpressionLoss, load_loss, save_loss
from evomal.losses.contract import Provenance
from evomal.methods import Judge, Method, method_named
from evomal.runs.candidates import RecordedCandidate, genome_text
from evomal.runs.differences import versions
from evomal.runs.generations import Generation, summarised
from evomal.runs.results import Best, SearchResult
from evomal.runs.store import RECORD_NAME, RunStore
from evomal.settings import SearchSettings
from evomal.strategies import Outcome, Proposal, Strategy
from evomal.tasks.task import Task

BEST_NAME = "best.json"
KNOWN_SEEDS = {"ce": "mul(-1, mul(y, log(f)))", "mse": "square(sub(y, f))", "mae": "abs(sub(y, f))"}
"""Losses to begin with that have a name and are expressions."""

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
    report: Report | None = None,
    source: Mapping[str, Any] | None = None,
    **changes: Any,
) -> SearchResult:
    """Search for a loss; with a folder the search is recorded there, and goes on where that record ends.

    `settings`, or the preset with `changes`, decide how; `callback` is called after each generation, `report` while one
    is computed, and `source` is recorded: whatever the caller needs to have the tasks again. The same seed and settings
    give the same result, whether interrupted or not.
    """
    chosen = method_named(method)
    resolved = settings if settings is not None else SearchSettings.preset(preset, **changes)
    if settings is not None and changes:
        raise InputError(f"settings are given already, so they cannot be changed by {', '.join(changes)}")
    engine = Engine(task, seed=seed, settings=_engine_settings(resolved))
    run = _Run(engine, chosen, resolved, seed, source)
    if folder is None:
        return run.to_the_end(None, callback, report)
    with _record(Path(folder), run.description()) as store:
        return run.to_the_end(store, callback, report)


class _Run:
    """A strategy and a judge, taking turns."""

    def __init__(
        self, engine: Engine, method: Method, settings: SearchSettings, seed: int, source: Mapping[str, Any] | None
    ) -> None:
        self._source = source
        self._engine, self._method, self._settings, self._seed = engine, method, settings, seed
        seeds = [_seed_expression(name, engine.tasks[0].kind) for name in settings.seed_with]
        self._strategy: Strategy = method.strategy(settings, seed, seeds)
        self._judge = Judge(engine, seed=seed, optimised=method.optimised, filters=settings.filters)
        self._recorded: list[RecordedCandidate] = []

    def description(self) -> dict[str, Any]:
        """Everything that can change a float, for the record."""
        return {
            **self._engine.record(),
            "method": self._method.name,
            "seed": self._seed,
            "task": [dict(task.record) | {"name": task.name} for task in self._engine.tasks],
            "settings": self._settings.model_dump(mode="json", exclude=BUDGETS),
            "budgets": self._settings.model_dump(mode="json", include=BUDGETS),
            "source": None if self._source is None else dict(self._source),
            "versions": versions(),
        }

    def to_the_end(self, store: RunStore | None, callback: Callback | None, report: Report | None) -> SearchResult:
        begin = time.perf_counter()
        if store is not None:
            self._replay(store)
        ending = None if store is None else store.ending
        while ending is None and not self._strategy.finished:
            ending = self._spent(time.perf_counter() - begin)
            if ending is None:
                self._turn(store, report)
                if callback is not None:
                    callback(self._history()[-1])
        if ending is None:
            ending = f"all {self._strategy.generation} generations are done"
            if store is not None:
                store.finish(ending)
        folder = None if store is None else store.path.parent
        archive = self._judge.archive
        return SearchResult(self._best(), self._history(), archive.front, ending, folder, time.perf_counter() - begin)

    def _turn(self, store: RunStore | None, report: Report | None) -> None:
        generation = self._strategy.generation
        proposals = self._strategy.ask()
        before = self._judge.archive.best
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
        if recorded:
            self._save_best(store.path.parent)  # killed between record and file, it may be behind

    def _spent(self, seconds: float) -> str | None:
        """Why no further generation is begun, if a budget is used up."""
        settings = self._settings
        if settings.max_time is not None and seconds >= settings.max_time:
            return f"the time of {settings.max_time:g} s is used up"
        evaluated = sum(row.state == "evaluated" and row.origin != "elite" for row in self._recorded)
        if settings.max_evaluations is not None and evaluated >= settings.max_evaluations:
            return f"{evaluated} candidates were evaluated, and {settings.max_evaluations} are allowed"
        best = self._judge.archive.best
        if settings.patience is not None and best is not None:
            waited = self._strategy.generation - 1 - best.generation
            if waited >= settings.patience:
                return f"nothing better was found for {waited} generations"
        return None

    def _history(self) -> tuple[Generation, ...]:
        return summarised(self._recorded)

    def _best(self) -> Best | None:
        found = self._judge.archive.best
        if found is None or found.expression is None:
            return None
        task = self._engine.tasks[0]
        return Best(
            found.expression, found.weights, found.fitness, found.generation, task.kind, self._settings.activation
        )

    def _save_best(self, folder: Path) -> None:
        best = self._best()
        if best is None:
            return
        task = self._engine.tasks[0]
        provenance: Provenance = {
            "task": task.name, "model": str(task.record.get("model", "own")), "method": self._method.name,
            "seed": self._seed, "fitness": best.fitness, "metric": task.metric.name,
        }  # fmt: skip
        save_loss(best.loss(), folder / BEST_NAME, provenance=provenance)


BUDGETS = {"max_time", "max_evaluations", "patience", "generations"}
"""Settings that end a search sooner or later but change nothing that is computed: they may differ on resuming."""


_FREE = {"budgets", "source"}


def _record(folder: Path, description: dict[str, Any]) -> RunStore:
    """The folder's record: a new one, or the one that is there if it is of this very search."""
    if not (folder / RECORD_NAME).exists():
        return RunStore.create(folder, description)
    store = RunStore.open(folder)
    differing = [entry for entry in store.differences(description) if entry.key.split(".")[0] not in _FREE]
    if differing:
        store.close()
        raise InputError(f"{store.path}: is the record of another search: {'; '.join(map(str, differing))}")
    return store


def _rows(generation: int, proposals: Sequence[Proposal], outcomes: Sequence[Outcome]) -> list[RecordedCandidate]:
    pairs = enumerate(zip(proposals, outcomes, strict=True))
    return [RecordedCandidate.of(generation, index, proposal, outcome) for index, (proposal, outcome) in pairs]


def _engine_settings(settings: SearchSettings) -> EngineSettings:
    return EngineSettings(
        population=settings.population,
        meta_steps=settings.meta_steps,
        meta_lr=settings.meta_lr,
        inner_steps=settings.inner_steps,
        training_steps=settings.training_steps,
        optimizer=settings.optimizer,
        filter_steps=settings.filter_steps,
        filter_samples=settings.filter_samples,
        activation=settings.activation,
        recipe=settings.recipe_changes(),
        device=settings.device,
        precision=settings.precision,
        channels_last=settings.channels_last,
        population_mode=settings.population_mode,
        chunk=settings.chunk,
    )


def _seed_expression(name: str, kind: str) -> Expression:
    if name in KNOWN_SEEDS:
        return Expression.parse(KNOWN_SEEDS[name])
    loss = load_loss(name)
    if not isinstance(loss, ExpressionLoss):
        raise InputError(f"{name}: a search begins with expressions ({', '.join(KNOWN_SEEDS)} or loss files of such)")
    if loss.kind != kind:
        raise InputError(f"{name}: the task is {kind}, but the loss is for {loss.kind}")
    return loss.expression
