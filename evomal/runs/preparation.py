"""Everything that a search needs besides its record, built from its settings."""

import contextlib
import dataclasses
import os
from collections.abc import Iterator, Sequence

from evomal.checks import Kind
from evomal.engine import Engine, EngineSettings
from evomal.errors import InputError
from evomal.expression import Expression
from evomal.losses import ExpressionLoss, load_loss
from evomal.losses.catalogue import TASK_LOSSES
from evomal.methods import Evaluator, Executor, Method, SearchContext
from evomal.methods.rungs import Ladder
from evomal.methods.several_tasks import with_rule
from evomal.methods.spaces import with_space
from evomal.methods.strategy import Strategy
from evomal.randomness import generator
from evomal.runs.callbacks import SearchListener
from evomal.runs.executors import open_executor
from evomal.settings import SearchSettings
from evomal.tasks.task import Task, task_list, with_final_rows
from evomal.text import with_article

KNOWN_SEEDS = {"ce": "mul(-1, mul(y, log(f)))", "mse": "square(sub(y, f))", "mae": "abs(sub(y, f))"}
"""The expressions that the setting `seed_with` knows by name."""

_SHARED_SETTINGS = {field.name for field in dataclasses.fields(EngineSettings)} & {*SearchSettings.model_fields}


@dataclasses.dataclass(frozen=True)
class Prepared:
    """The parts of a search, checked and ready to run."""

    tasks: Sequence[Task]
    executor: Executor
    context: SearchContext
    strategy: Strategy
    evaluator: Evaluator


@contextlib.contextmanager
def prepared(
    tasks: Task | Sequence[Task], method: Method, settings: SearchSettings, seed: int,
    listener: SearchListener | None = None, jobs: int = 1,
) -> Iterator[Prepared]:  # fmt: skip
    """A context with everything checked and nothing computed yet; workers exist until it ends."""
    ready = _prepared_tasks(tasks, settings, seed)
    settings = _fitting(settings, ready)
    engine = engine_settings(settings, method)
    with open_executor(ready, settings, seed=seed, engine=engine, listener=listener, jobs=jobs) as executor:
        context = _context(ready, settings, seed)
        yield Prepared(ready, executor, context, _strategy(method, context), method.evaluator(context, executor))


def prepared_locally(
    tasks: Task | Sequence[Task], method: Method, settings: SearchSettings, seed: int
) -> tuple[Engine, Strategy, Ladder | None]:
    """The engine, the strategy and the rungs of a search in this process, for estimates."""
    ready = _prepared_tasks(tasks, settings, seed)
    settings = _fitting(settings, ready)
    engine = Engine(ready, seed=seed, settings=engine_settings(settings, method))
    context = _context(engine.tasks, settings, seed)
    return engine, _strategy(method, context), context.ladder


def _fitting(settings: SearchSettings, tasks: Sequence[Task]) -> SearchSettings:
    """The settings with what the tasks decide."""
    return with_space(with_rule(settings, tasks), tasks)


def _context(tasks: Sequence[Task], settings: SearchSettings, seed: int) -> SearchContext:
    is_exchangeable = all(task.exchangeable for task in tasks)
    return SearchContext(settings, seed, tasks[0].kind, is_exchangeable)


def _strategy(method: Method, context: SearchContext) -> Strategy:
    return method.strategy(context, [_seed_expression(name, context.kind) for name in context.settings.seed_with])


def engine_settings(settings: SearchSettings, method: Method) -> EngineSettings:
    """The settings of the engine; only expressions have an output activation."""
    shared = {name: getattr(settings, name) for name in _SHARED_SETTINGS}
    if not method.searches_expressions:
        shared["activation"] = "identity"
    return EngineSettings(**shared, recipe=settings.recipe_changes())


def _prepared_tasks(tasks: Task | Sequence[Task], settings: SearchSettings, seed: int) -> list[Task]:
    """The tasks with the metric of the settings, and with rows for a final that does not draw splits of its own."""
    several = task_list("task", tasks)
    if settings.metric is not None:
        several = [task.judged_by(settings.metric) for task in several]
    is_resplit = settings.resplit and all(task.exchangeable for task in several)
    if not settings.finalists or is_resplit:  # a final on fresh splits needs no rows of its own
        return several
    return [
        with_final_rows(task, settings.final_share, generator=generator(seed, "final rows", number))
        for number, task in enumerate(several)
    ]


def _seed_expression(name: str, kind: Kind) -> Expression:
    if name == TASK_LOSSES["classification"] and kind == "regression":
        raise InputError(f"{name}: the task is {kind}, but the loss is for classification")
    if name in KNOWN_SEEDS:
        return Expression.parse(KNOWN_SEEDS[name])
    if not os.path.exists(name):
        raise InputError(
            f"{name}: seed_with must be {', '.join(KNOWN_SEEDS)} or a loss file, but there is no such file"
        )
    loss = load_loss(name)
    if not isinstance(loss, ExpressionLoss):
        raise InputError(
            f"{name}: seed_with must be the file of an expression but got {with_article(type(loss).__name__)}"
        )
    if loss.kind != kind:
        raise InputError(f"{name}: the task is {kind}, but the loss is for {loss.kind}")
    return loss.expression
