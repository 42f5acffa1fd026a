"""`evomal analyse`: the figures that need models trained on a task."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evomal.cli.analysing import Drawn, draws
from evomal.cli.options import (
    TRAININGS,
    DataFolder,
    Device,
    Milestones,
    Model,
    Seeds,
    Steps,
    TaskName,
    echo,
    given_options,
    split_losses,
    split_rates,
    with_options,
)
from evomal.cli.task_specs import task_from_spec
from evomal.errors import InputError

if TYPE_CHECKING:
    from evomal.figures.data import TrainingOptions
    from evomal.tasks import Task

LossNames = Annotated[
    list[str] | None,
    typer.Option(
        "--losses",
        help='Names of losses or loss files, comma-separated; "strong" stands for the known losses that fit the task '
        "(default: the task's own loss and its most usual rivals).",
    ),
]
FirstSeed = Annotated[
    int | None,
    typer.Option(help="The first evaluation seed (default: that of evomal compare).", min=0, rich_help_panel=TRAININGS),
]


Trained = tuple["Task", list[str]]
"""A task, and the losses that its model is trained with."""


def _trained(task: TaskName, losses: LossNames = None, model: Model = None, data: DataFolder = None) -> Trained:
    chosen = task_from_spec(task, model, data)
    return chosen, _losses(losses, chosen)


def _losses(values: list[str] | None, task: "Task") -> list[str]:
    from evomal.figures.data import usual_losses

    return split_losses(values, task) if values else usual_losses(task)


def _options(
    seeds: Seeds = 5,
    seed: FirstSeed = None,
    steps: Steps = None,
    milestones: Milestones = None,
    device: Device = "auto",
) -> "TrainingOptions":
    # Typer gives an empty list for an option that was not given.
    return {
        "seeds": seeds,
        "seed": seed,
        "steps": steps,
        "milestones": tuple(milestones) if milestones else None,
        "device": device,
        "announce": lambda sentence: echo(sentence, err=True),
    }


@draws
@with_options(trained=_trained, options=_options)
def show_landscape(
    *,
    trained: Trained,
    two_d: Annotated[bool, typer.Option("--two-d", help="Go along two directions, and draw contours.")] = False,
    points: Annotated[int, typer.Option(help="Number of points along a direction; must be odd.")] = 41,
    radius: Annotated[float, typer.Option(help="Distance to go, relative to the norm of each filter.")] = 1.0,
    of: Annotated[
        str, typer.Option(help="What to draw: task (the task's loss) or training (the loss of the training).")
    ] = "task",
    samples: Annotated[int, typer.Option(help="Number of training samples to average over.")] = 1000,
    options: "TrainingOptions",
) -> Drawn:
    """Draw loss landscapes around trained weights, along random filter-normalised directions (Li et al., 2018)."""
    from evomal.figures.landscape import draw_landscapes, landscapes
    from evomal.report.figure_lines import landscape_lines

    found = landscapes(
        *trained, two_d=two_d, points=points, radius=radius, samples=samples,
        of=of, **options,  # type: ignore[arg-type]  # checked by landscapes
    )  # fmt: skip
    name = "landscape-2d" if two_d else "landscape"
    return name, found, draw_landscapes(found), landscape_lines(found)


@draws
@with_options(trained=_trained, options=_options)
def show_training(
    *,
    trained: Trained,
    points: Annotated[int, typer.Option(help="Number of points on a curve.", min=1)] = 50,
    options: "TrainingOptions",
) -> Drawn:
    """Draw training curves of several losses: the validation metric and the training loss over steps."""
    from evomal.figures.training_curves import draw_training_curves, training_curves
    from evomal.report.figure_lines import training_lines

    found = training_curves(*trained, points=points, **options)
    return "training", found, draw_training_curves(found), training_lines(found)


@draws
@with_options(trained=_trained)
def show_representation(
    *,
    trained: Trained,
    samples: Annotated[int, typer.Option(help="Number of test samples to draw.")] = 1000,
    seed: Annotated[
        int | None,
        typer.Option(
            help="The evaluation seed (default: the first of evomal compare).", min=0, rich_help_panel=TRAININGS
        ),
    ] = None,
    steps: Steps = None,
    milestones: Milestones = None,
    device: Device = "auto",
) -> Drawn:
    """Draw the inputs of the last layer for test samples, arranged by t-SNE, with one panel per loss."""
    from evomal.paper.representations import draw_representations, representations
    from evomal.report.figure_lines import representation_lines

    options = _options(1, seed, steps, milestones, device)
    found = representations(*trained, samples=samples, **options)
    return "representation", found, draw_representations(found), representation_lines(found)


@draws
def show_learning_rate(
    context: typer.Context,
    source: Annotated[
        str,
        typer.Argument(
            metavar="FOLDER|TASK", help="The --out folder of evomal compare --rates; or with --rates, a task."
        ),
    ],
    rates: Annotated[list[str] | None, typer.Option(help="Learning rates to train with now, comma-separated.")] = None,
    losses: LossNames = None,
    model: Model = None,
    seeds: Seeds = 5,
    steps: Annotated[
        int | None,
        typer.Option(help="Number of training steps (default: that of evomal compare).", rich_help_panel=TRAININGS),
    ] = None,
    milestones: Milestones = None,
    device: Device = "auto",
    data: DataFolder = None,
) -> Drawn:
    """Draw the test metric over learning rates, for the task's own loss and others."""
    from evomal.figures.learning_rate import draw_rate_curves, rate_curves, recorded_rate_curves
    from evomal.report.figure_lines import rate_lines
    from evomal.verdict.comparing import rate_curve

    if not rates:
        trainings = ("losses", "model", "seeds", "steps", "milestones", "device", "data")
        if given := given_options(context, *trainings):
            raise InputError(f"{given} must be given with --rates, which trains now, but there is no --rates")
        if not os.path.exists(source):
            raise InputError(f"{source}: there is no such folder; to train on a task now, give its --rates")
        found = recorded_rate_curves(Path(source))
    else:
        chosen = task_from_spec(source, model, data)
        settings: dict[str, Any] = {"device": device, "milestones": tuple(milestones) if milestones else None}
        settings |= {} if steps is None else {"final_steps": steps}
        named = _losses(losses, chosen)
        computed = rate_curve(chosen, rates=split_rates(rates), losses=named, seeds=seeds, progress=True, **settings)
        found = rate_curves(computed)
    return "learning-rate", found, draw_rate_curves(found), rate_lines(found)


KINDS: dict[str, Callable[..., None]] = {
    "landscape": show_landscape,
    "training": show_training,
    "representation": show_representation,
    "learning-rate": show_learning_rate,
}
