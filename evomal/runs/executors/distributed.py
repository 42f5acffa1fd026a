"""Candidates on the workers of a Ray cluster, with an engine each."""

import dataclasses
import functools
import math
from collections.abc import Sequence
from typing import Any

from evomal.engine import Engine, EngineSettings
from evomal.expression import Expression
from evomal.methods import Stage
from evomal.progress import StageStepsDone
from evomal.runs.executors.backlog import units
from evomal.runs.executors.local import LocalExecutor
from evomal.runs.executors.worker_pool import Crew
from evomal.tasks.task import Task

_STEPPED: dict[Stage, str] = {
    "optimise": "optimise",
    "optimise_networks": "optimise",
    "evaluate": "evaluate",
    "evaluate_losses": "evaluate",
}
"""Under which name a stage reports its steps."""
_OF_EXPRESSIONS: tuple[Stage, ...] = ("gradient_norms", "optimise", "gains", "evaluate")
_SIMPLE = Expression.parse("square(sub(y, f))")


class EngineAbility:
    """An engine in a worker."""

    def __init__(self, tasks: Task | Sequence[Task], *, seed: int, settings: EngineSettings) -> None:
        self._engine = Engine(tasks, seed=seed, settings=settings)
        self._executor = LocalExecutor(self._engine, raises_memory_errors=True)
        # Kernels are loaded now, so that no candidate's time is up because of them.
        brief = dataclasses.replace(settings, meta_steps=1, training_steps=1, filter_steps=1)
        trial = LocalExecutor(Engine(tasks, seed=seed, settings=brief))
        for stage in _OF_EXPRESSIONS:
            trial.run(stage, [_SIMPLE], [[1.0] * _SIMPLE.edges])

    def about(self) -> dict[str, Any]:
        engine = self._engine
        return {"record": engine.record(), "steps": engine.steps(1), "units": units(engine.plans, engine.device.type)}

    def work(self, order: tuple[Stage, Sequence[Sequence[Any]], int | None]) -> list[Any]:
        stage, columns, seed = order
        return self._executor.run(stage, *columns, seed=seed)


class RayExecutor:
    """Spreads candidates over a crew; the driver itself needs no engine and no GPU."""

    def __init__(self, crew: Crew, tasks: Sequence[Task], *, seed: int, settings: EngineSettings) -> None:
        self._crew, self._tasks = crew, tasks
        self._make = functools.partial(EngineAbility, seed=seed, settings=settings)
        self._teach()
        self._tell_of_idle_workers(settings.population)

    def run(
        self, stage: Stage, *columns: Sequence[Any], seed: int | None = None, report: StageStepsDone | None = None
    ) -> list[Any]:
        if self._crew.lesson != self._lesson:  # a search inside this one, as by a callback, has the same workers
            self._teach()
        count = len(columns[0])
        name = _STEPPED.get(stage, stage)
        each = self._about["steps"].get(name, 0)

        def order(rows: list[int]) -> tuple[Stage, list[list[Any]], int | None]:
            return stage, [[column[row] for row in rows] for column in columns], seed

        return self._crew.spread(
            count, unit=self._about["units"][stage] or count, order=order, name="candidates",
            done=None if report is None else lambda rows, _: report(name, each * len(rows)),
        )  # fmt: skip

    def record(self) -> dict[str, Any]:
        record: dict[str, Any] = self._about["record"]
        return record

    def steps(self, candidates: int) -> dict[str, int]:
        return {stage: each * candidates for stage, each in self._about["steps"].items()}

    def _teach(self) -> None:
        self._about = self._crew.teach(self._make, self._tasks, "task")
        self._lesson = self._crew.lesson

    def _tell_of_idle_workers(self, population: int) -> None:
        """Say so where the model is stacked in fewer chunks than there are workers."""
        wanted, unit = min(self._crew.size, population), self._about["units"]["evaluate"]
        chunks = math.ceil(population / unit)
        if chunks >= wanted:
            return
        noun, verb = ("chunk", "has") if chunks == 1 else ("chunks", "have")
        self._crew.tell_once(
            f"the model is stacked in {chunks} {noun} of {min(unit, population)}, so {chunks} of {self._crew.size} "
            f"workers {verb} work: --set chunk={population // wanted} or --set population_mode=looped uses more"
        )
