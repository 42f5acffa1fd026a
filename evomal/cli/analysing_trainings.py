"""`evomal analyse`: the figures that need models trained on a task."""

import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from evomal.cli.analysing import FIGURES, show
from evomal.cli.comparing import Seeds
from evomal.cli.options import (
    AsJson,
    DataFolder,
    FigureFolder,
    LossNames,
    Milestones,
    Model,
    Steps,
    TaskName,
    TrainingDevice,
    split_losses,
    split_rates,
)
from evomal.cli.task_specs import task_from_spec
from evomal.errors import InputError
from evomal.figures.data import FIRST_SEED, TrainingOptions, usual_losses
from evomal.figures.landscape import UNMOVED, Landscapes, draw_landscapes, landscapes
from evomal.figures.learning_rate import RateCurves, draw_rate_curves, rate_curves, recorded_rate_curves
from evomal.figures.training_curves import TrainingCurves, draw_training_curves, training_curves
from evomal.paper.representations import Representations, draw_representations, representations
from evomal.tasks import Hardships, Task
from evomal.tasks.metrics import metric_text
from evomal.text import plural, printable, shorten
from evomal.verdict.comparing import rate_curve
from evomal.verdict.words import schedule_words

FirstSeed = Annotated[int, typer.Option(help="The first evaluation seed.", min=0)]


def show_landscape(
    task: TaskName,
    losses: LossNames = None,
    model: Model = None,
    seeds: Seeds = 5,
    seed: FirstSeed = FIRST_SEED,
    steps: Steps = None,
    milestones: Milestones = None,
    two_d: Annotated[bool, typer.Option("--two-d", help="Along two directions, as contours.")] = False,
    points: Annotated[int, typer.Option(help="Points along a direction, an odd number.")] = 41,
    radius: Annotated[float, typer.Option(help="How far to go, in norms of the weights' filters.")] = 1.0,
    of: Annotated[
        str, typer.Option(help="The height: task (the task's loss) or training (each model's own).")
    ] = "task",
    samples: Annotated[int, typer.Option(help="Training rows to average over.")] = 1000,
    device: TrainingDevice = "auto",
    data: DataFolder = None,
    out: FigureFolder = FIGURES,
    as_json: AsJson = False,
) -> None:
    """Loss landscapes around trained weights, along random filter-wise normalised directions (Li et al., 2018)."""
    chosen = task_from_spec(task, model, data, Hardships())
    found = landscapes(
        chosen, _losses(losses, chosen), two_d=two_d, points=points, radius=radius, samples=samples, seeds=seeds,
        seed=seed, of=of, **_options(steps, milestones, device),  # type: ignore[arg-type]  # checked by landscapes
    )  # fmt: skip
    name = "landscape-2d" if two_d else "landscape"
    show(name, found, draw_landscapes(found), _landscape_lines(found), out=out, as_json=as_json)


def show_training(
    task: TaskName,
    losses: LossNames = None,
    model: Model = None,
    seeds: Seeds = 5,
    seed: FirstSeed = FIRST_SEED,
    steps: Steps = None,
    milestones: Milestones = None,
    points: Annotated[int, typer.Option(help="Points of a curve.", min=1)] = 50,
    device: TrainingDevice = "auto",
    data: DataFolder = None,
    out: FigureFolder = FIGURES,
    as_json: AsJson = False,
) -> None:
    """Training curves of several losses: validation metric and training loss, step by step."""
    chosen = task_from_spec(task, model, data, Hardships())
    options = _options(steps, milestones, device)
    found = training_curves(chosen, _losses(losses, chosen), points=points, seeds=seeds, seed=seed, **options)
    show("training", found, draw_training_curves(found), _curve_lines(found), out=out, as_json=as_json)


def show_representation(
    task: TaskName,
    losses: LossNames = None,
    model: Model = None,
    samples: Annotated[int, typer.Option(help="Test rows to lay out.")] = 1000,
    seed: Annotated[int, typer.Option(help="The evaluation seed.", min=0)] = FIRST_SEED,
    steps: Steps = None,
    milestones: Milestones = None,
    device: TrainingDevice = "auto",
    data: DataFolder = None,
    out: FigureFolder = FIGURES,
    as_json: AsJson = False,
) -> None:
    """The test rows as the last layer of trained models sees them, by t-SNE; one picture per loss."""
    chosen = task_from_spec(task, model, data, Hardships())
    options = _options(steps, milestones, device)
    found = representations(chosen, _losses(losses, chosen), samples=samples, seed=seed, **options)
    show("representation", found, draw_representations(found), _picture_lines(found), out=out, as_json=as_json)


def show_learning_rate(
    source: Annotated[
        str,
        typer.Argument(metavar="DIR|TASK", help="A folder of evomal compare --rates; with --rates, a task."),
    ],
    rates: Annotated[str | None, typer.Option(help="Learning rates, comma-separated: train now.")] = None,
    losses: LossNames = None,
    model: Model = None,
    seeds: Seeds = 5,
    steps: Annotated[int | None, typer.Option(help="Training steps (default: those of evomal compare).")] = None,
    milestones: Milestones = None,
    device: TrainingDevice = "auto",
    data: DataFolder = None,
    out: FigureFolder = FIGURES,
    as_json: AsJson = False,
) -> None:
    """Error against base learning rate, for the task's own loss and others."""
    if rates is None:
        if any(option is not None for option in (losses, model, steps, milestones)):
            raise InputError("--losses, --model, --steps and --milestone need --rates, which trains now")
        if not Path(source).exists():
            raise InputError(f"{source}: there is no such folder; to train on a task now, give its --rates")
        found = recorded_rate_curves(Path(source))
    else:
        chosen = task_from_spec(source, model, data, Hardships())
        settings: dict[str, Any] = {"device": device, "milestones": tuple(milestones) if milestones else None}
        settings |= {} if steps is None else {"final_steps": steps}
        named = _losses(losses, chosen)
        computed = rate_curve(chosen, rates=split_rates(rates), losses=named, seeds=seeds, progress=True, **settings)
        found = rate_curves(computed)
    show("learning-rate", found, draw_rate_curves(found), _rate_lines(found), out=out, as_json=as_json)


KINDS: dict[str, Callable[..., None]] = {
    "landscape": show_landscape,
    "training": show_training,
    "representation": show_representation,
    "learning-rate": show_learning_rate,
}


def _options(steps: int | None, milestones: list[int] | None, device: str) -> TrainingOptions:
    # Typer gives an empty list for an option that was not given.
    return {
        "steps": steps,
        "milestones": tuple(milestones) if milestones else None,
        "device": device,
        "announce": lambda sentence: typer.echo(printable(sentence), err=True),
    }


def _losses(names: str | None, task: Task) -> list[str]:
    return usual_losses(task) if names is None else split_losses(names, task)


def _landscape_lines(found: Landscapes) -> Iterator[str]:
    yield f"{found.height_name} after {found.schedule} on {found.task}, {found.row_words}"
    for landscape in found.losses:
        yield (
            f"{_name(landscape.name)}: {landscape.centre:.4g} at the weights, {landscape.rise:+.4g} at a distance of "
            f"{found.positions[-1]:g} ({plural(len(landscape.seeds), 'seed')})"
        )
    if found.losses:
        yield UNMOVED
    yield from found.sentences


def _curve_lines(found: TrainingCurves) -> Iterator[str]:
    yield f"test {found.metric} after {schedule_words(found.steps, found.milestones)} on {found.task}"
    for curve in found.losses:
        trained, count = len(curve.trained), len(curve.scores)
        diverged = "" if trained == count else f", {count - trained} of {count} diverged"
        value = _with_deviation(curve.test, curve.test_deviation, found.metric)
        yield f"{_name(curve.name)}: {value} over {plural(trained, 'seed')}{diverged}"
    yield from found.sentences


def _picture_lines(found: Representations) -> Iterator[str]:
    yield f"{plural(found.rows, 'test row')} of {found.task} after {found.schedule}, seed {found.seed}"
    for picture in found.losses:
        line = f"{_name(picture.name)}: test {found.metric} {metric_text(picture.test, found.metric)}"
        if picture.same_class_neighbours is not None:
            line += f"; {picture.same_class_neighbours:.1%} of rows have their nearest row in their own class"
        yield f"{line} ({plural(picture.features, 'input')} of {picture.layer})"
    yield from found.sentences


def _rate_lines(found: RateCurves) -> Iterator[str]:
    if found.lines:
        schedule = schedule_words(found.steps, found.milestones)
        yield f"test {found.metric} after {schedule} on {found.task}, {plural(found.seeds, 'seed')} at each rate"
    for line in found.lines:
        best = found.best(line)
        if best is None:
            yield f"{_name(line.name)}: at every rate something diverged, or nothing was found"
        else:
            value = _with_deviation(best.mean, best.deviation, found.metric)
            yield f"{_name(line.name)}: best at {best.rate:g}, {value}"
    yield from found.sentences


def _with_deviation(mean: float, deviation: float, metric: str) -> str:
    if math.isnan(mean):
        return "diverged"
    return metric_text(mean, metric, None if math.isnan(deviation) else deviation)


def _name(name: str) -> str:
    return shorten(name, 26)
