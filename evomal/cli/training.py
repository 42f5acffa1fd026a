"""`evomal train`: a task's model trained with a loss, over several seeds."""

import statistics
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evomal.checks import MOST_SEEDS
from evomal.cli.options import (
    TRAININGS,
    AsJson,
    DataFolder,
    Device,
    Milestones,
    Model,
    Steps,
    TaskNames,
    echo,
    echo_json,
    hardship_options,
    options_from,
    with_options,
)
from evomal.cli.task_specs import task_from_spec
from evomal.text import plural

if TYPE_CHECKING:
    from evomal.engine import Score, TrainingSettings
    from evomal.tasks import Hardships, Task


_RECIPE: Mapping[str, tuple[Any, str]] = {
    "optimizer": (str, "The optimizer, such as sgd or adamw"),
    "schedule": (str, "Schedule of the learning rate: step, constant, linear, cosine, one-cycle"),
    "warmup": (float, "Share of the steps in which the learning rate rises"),
    "clip": (float, "Norm to which gradients are clipped"),
    "lr": (float, "Learning rate"),
    "momentum": (float, "Momentum of SGD"),
    "nesterov": (bool, "Use Nesterov momentum"),
    "weight_decay": (float, "Weight decay"),
    "batch_size": (int, "Number of samples per step"),
}
"""Type and help text of the options by which a training differs from the task's recipe."""


def _recipe_options(**given: Any) -> dict[str, Any]:
    return given


_recipe_options.__signature__ = options_from(  # type: ignore[attr-defined]
    (name, kind | None, None, {"help": f"{text} (default: the task's).", "rich_help_panel": TRAININGS})
    for name, (kind, text) in _RECIPE.items()
)


@with_options(changes=_recipe_options, hardships=hardship_options)
def train_models(
    tasks: TaskNames,
    *,
    loss: Annotated[
        str,
        typer.Option(
            help="The name of a loss (see evomal losses) or a loss file; a procedure may follow, as in ce+temperature."
        ),
    ],
    model: Model = None,
    seeds: Annotated[
        int, typer.Option(help="Number of seeds, starting from 0.", rich_help_panel=TRAININGS, min=1, max=MOST_SEEDS)
    ] = 5,
    steps: Steps = None,
    changes: dict[str, Any],
    milestone: Milestones = None,
    device: Device = "auto",
    precision: Annotated[
        str, typer.Option(help="Precision of the training: float32, tf32 or bfloat16.", rich_help_panel=TRAININGS)
    ] = "float32",
    channels_last: Annotated[
        bool,
        typer.Option(
            "--channels-last", help="Use the channels-last memory format for images.", rich_help_panel=TRAININGS
        ),
    ] = False,
    data: DataFolder = None,
    as_json: AsJson = False,
    hardships: "Hardships",
) -> None:
    """Train a task's model with a loss over several seeds, and evaluate it on the test split."""
    from evomal.engine import TrainingSettings

    chosen = [task_from_spec(task, model, data, hardships) for task in tasks]
    settings = TrainingSettings(
        **changes,  # type: ignore[typeddict-item]  # validated by train(), as for every other caller
        steps=steps,
        milestones=tuple(milestone) if milestone else None,
        device=device,
        precision=precision,
        channels_last=channels_last,
        progress=True,
    )
    results = [_trained_task(task, loss, seeds, settings, shown=not as_json) for task in chosen]
    if as_json:
        echo_json(results[0] if len(results) == 1 else results)


def _trained_task(task: "Task", loss: str, seeds: int, settings: "TrainingSettings", *, shown: bool) -> dict[str, Any]:
    """Train over the seeds, print each score and then the summary if `shown`, and return everything as data."""
    from evomal.engine import train
    from evomal.tasks.metric_display import metric_text

    scores = []
    for seed in range(seeds):
        settings["seed"] = seed
        score = train(task, loss, **settings)
        scores.append(score)
        if shown:
            echo(f"{task.name}, seed {seed}: {_scored(score, task.metric.name)}")
    trained = [score.test for score in scores if not score.diverged]
    if shown and trained:
        metric, deviation = task.metric.name, statistics.stdev(trained) if len(trained) > 1 else None
        average = metric_text(statistics.mean(trained), metric, deviation)
        echo(f"{task.name}: test {metric} {average} over {plural(len(trained), 'seed')}")
    if shown and len(trained) < seeds:
        echo(f"{task.name}: {seeds - len(trained)} of {plural(seeds, 'seed')} diverged")
    if shown and (copies := task.record.get("equal_rows_across_splits")):
        echo(f"{task.name}: {plural(copies, 'row')} of validation and test with an equal row in an earlier split")
    record = {"task": dict(task.record), "metric": task.metric.name, "loss": loss}
    return {**record, "scores": [score.to_dict() for score in scores]}


def _scored(score: "Score", metric: str) -> str:
    from evomal.tasks.metric_display import metric_text

    if score.diverged:
        return f"diverged: {score.sentence}"
    others = ", ".join(f"{name} {metric_text(value, name)}" for name, value in score.metrics.items() if name != metric)
    test, validation = (metric_text(value, metric) for value in (score.test, score.validation))
    return f"test {metric} {test}, validation {validation} ({others})"
