"""From settings to all that takes part in a search but its record."""

import dataclasses
from collections.abc import Sequence
from pathlib import Path

from evomal.engine import Engine, EngineSettings
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.losses import ExpressionLoss, load_loss
from evomal.losses.contract import Kind
from evomal.methods import Brief, Judge, Method
from evomal.runs.executors import EXECUTORS
from evomal.settings import SearchSettings
from evomal.strategies import Strategy
from evomal.tasks.task import Task

KNOWN_SEEDS = {"ce": "mul(-1, mul(y, log(f)))", "mse": "square(sub(y, f))", "mae": "abs(sub(y, f))"}
"""Losses to begin with that have a name and are expressions."""

_SHARED = [field.name for field in dataclasses.fields(EngineSettings) if field.name in SearchSettings.model_fields]


@dataclasses.dataclass(frozen=True)
class Prepared:
    """All that takes part in a search but its record."""

    engine: Engine
    strategy: Strategy
    judge: Judge


def prepared(tasks: Task | Sequence[Task], method: Method, settings: SearchSettings, seed: int) -> Prepared:
    """Everything checked and in place, nothing computed yet."""
    engine = Engine(_judged(tasks, settings), seed=seed, settings=engine_settings(settings, method))
    brief = Brief(settings, seed, engine.tasks[0].kind)
    strategy = method.strategy(brief, [_seed_expression(name, brief.kind) for name in settings.seed_with])
    executor = EXECUTORS[settings.executor](engine)
    return Prepared(engine, strategy, method.judge(brief, executor))


def engine_settings(settings: SearchSettings, method: Method) -> EngineSettings:
    """What the engine needs to know; an output activation is for expressions only."""
    shared = {name: getattr(settings, name) for name in _SHARED}
    if not method.of_expressions:
        shared["activation"] = "identity"
    return EngineSettings(**shared, recipe=settings.recipe_changes())


def _judged(tasks: Task | Sequence[Task], settings: SearchSettings) -> Task | list[Task]:
    """The tasks with the metric that the settings ask for."""
    if settings.metric is None:
        return tasks if isinstance(tasks, Task) else list(tasks)
    several = [tasks] if isinstance(tasks, Task) else list(tasks)
    return [task.judged_by(settings.metric) for task in several]


def _seed_expression(name: str, kind: Kind) -> Expression:
    if name in KNOWN_SEEDS:
        return Expression.parse(KNOWN_SEEDS[name])
    if not Path(name).exists():
        raise InputError(
            f"{name}: a search begins with {', '.join(KNOWN_SEEDS)} or loss files, but there is no such file"
        )
    loss = load_loss(name)
    if not isinstance(loss, ExpressionLoss):
        raise InputError(f"{name}: a search begins with expressions ({', '.join(KNOWN_SEEDS)} or loss files of such)")
    if loss.kind != kind:
        raise InputError(f"{name}: the task is {kind}, but the loss is for {loss.kind}")
    return loss.expression
