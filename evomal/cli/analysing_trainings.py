"""`evomal analyse`: the kinds that train models on a task."""

import math
import textwrap
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Annotated, Any

import typer

from evomal.cli import analysing_losses as analysing
from evomal.cli.comparing import Model, Seeds
from evomal.cli.options import AsJson, chosen_task, listed_losses, listed_rates
from evomal.cli.searching import DataFolder
from evomal.errors import InputError
from evomal.figures.data import FIRST_SEED, shown_metric, usual_losses
from evomal.figures.landscape import UNMOVED, Landscapes, draw_landscapes, landscapes
from evomal.figures.learning_rate import RateCurves, draw_rate_curves, rate_curves, recorded_rate_curves
from evomal.figures.training_curves import TrainingCurves, draw_training_curves, training_curves
from evomal.paper.representations import Representations, draw_representations, representations
from evomal.tasks import Hardships, Task
from evomal.text import plural, printable, shorten
from evomal.verdict.comparing import rate_curve
from evomal.verdict.words import schedule_words

_WIDTH, _LONGEST_NAME = 80, 26

TaskName = Annotated[str, typer.Argument(help="A built-in task, or file.py:function.", show_default=False)]
Losses = Annotated[
    str | None,
    typer.Option(
        help="Losses by name or file, comma-separated; strong: the usual rivals (default: the task's, strong)."
    ),
]
OneSeed = Annotated[int, typer.Option(help="The evaluation seed.", min=0)]
FirstSeed = Annotated[int, typer.Option(help="The first evaluation seed.", min=0)]
Steps = Annotated[int | None, typer.Option(help="Training steps (default: the task's).")]
Milestones = Annotated[
    list[int] | None,
    typer.Option(
        "--milestone", help="Step at which the learning rate is divided by ten; may be repeated (default: the task's)."
    ),
]
Device = Annotated[str, typer.Option(help="auto, cpu or cuda.")]


def show_landscape(
    task: TaskName,
    losses: Losses = None,
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
    device: Device = "auto",
    data: DataFolder = None,
    out: analysing.Out = analysing.FIGURES,
    as_json: AsJson = False,
) -> None:
    """Loss landscapes around trained weights, along random filter-wise normalised directions (Li et al., 2018)."""
    chosen = chosen_task(task, model, data, Hardships())
    found = landscapes(
        chosen, _losses(losses, chosen), two_d=two_d, points=points, radius=radius, samples=samples, seeds=seeds,
        of=of, seed=seed, steps=steps, milestones=_given(milestones), device=device, announce=_announce,  # type: ignore[arg-type]  # checked where it is used
    )  # fmt: skip
    name = "landscape-2d" if two_d else "landscape"
    _show(name, draw_landscapes(found), found, _about_landscapes(found), out=out, as_json=as_json)


def show_training(
    task: TaskName,
    losses: Losses = None,
    model: Model = None,
    seeds: Seeds = 5,
    seed: FirstSeed = FIRST_SEED,
    steps: Steps = None,
    milestones: Milestones = None,
    points: Annotated[int, typer.Option(help="Points of a curve.", min=1)] = 50,
    device: Device = "auto",
    data: DataFolder = None,
    out: analysing.Out = analysing.FIGURES,
    as_json: AsJson = False,
) -> None:
    """Training curves of several losses: validation metric and training loss, step by step."""
    chosen = chosen_task(task, model, data, Hardships())
    found = training_curves(
        chosen,
        _losses(losses, chosen),
        points=points,
        seeds=seeds,
        seed=seed,
        steps=steps,
        milestones=_given(milestones),
        device=device,
        announce=_announce,
    )
    _show("training", draw_training_curves(found), found, _about_curves(found), out=out, as_json=as_json)


def show_representation(
    task: TaskName,
    losses: Losses = None,
    model: Model = None,
    samples: Annotated[int, typer.Option(help="Test rows to lay out.")] = 1000,
    seed: OneSeed = FIRST_SEED,
    steps: Steps = None,
    milestones: Milestones = None,
    device: Device = "auto",
    data: DataFolder = None,
    out: analysing.Out = analysing.FIGURES,
    as_json: AsJson = False,
) -> None:
    """What models make of the test rows before their last layer, by t-SNE: one picture a loss."""
    chosen = chosen_task(task, model, data, Hardships())
    found = representations(
        chosen,
        _losses(losses, chosen),
        samples=samples,
        seed=seed,
        steps=steps,
        milestones=_given(milestones),
        device=device,
        announce=_announce,
    )
    _show("representation", draw_representations(found), found, _about_pictures(found), out=out, as_json=as_json)


def show_learning_rate(
    source: Annotated[
        str,
        typer.Argument(metavar="DIR|TASK", help="A folder of evomal compare --rates; with --rates, a task."),
    ],
    rates: Annotated[str | None, typer.Option(help="Learning rates, comma-separated: train now.")] = None,
    losses: Losses = None,
    model: Model = None,
    seeds: Seeds = 5,
    steps: Annotated[int | None, typer.Option(help="Training steps (default: those of evomal compare).")] = None,
    milestones: Milestones = None,
    device: Device = "auto",
    data: DataFolder = None,
    out: analysing.Out = analysing.FIGURES,
    as_json: AsJson = False,
) -> None:
    """Error against base learning rate, the task's own loss beside others."""
    if rates is None:
        if any(option is not None for option in (losses, model, steps, milestones)):
            raise InputError("--losses, --model, --steps and --milestone are for trainings now, which need --rates")
        if not Path(source).exists():
            raise InputError(f"{source}: there is no such folder; to train on a task now, name its --rates")
        found = recorded_rate_curves(Path(source))
    else:
        chosen = chosen_task(source, model, data, Hardships())
        settings: dict[str, Any] = {"device": device} | ({} if steps is None else {"final_steps": steps})
        settings["milestones"] = _given(milestones)
        found = rate_curves(
            rate_curve(
                chosen,
                rates=listed_rates(rates),
                losses=_losses(losses, chosen),
                seeds=seeds,
                progress=True,
                **settings,
            )
        )
    _show("learning-rate", draw_rate_curves(found), found, _about_rates(found), out=out, as_json=as_json)


KINDS: dict[str, Callable[..., None]] = {
    "landscape": show_landscape,
    "training": show_training,
    "representation": show_representation,
    "learning-rate": show_learning_rate,
}


def _show(
    name: str, figure: Any, found: Landscapes | TrainingCurves | Representations | RateCurves, about: Iterable[str], *,
    out: Path, as_json: bool,
) -> None:  # fmt: skip
    sentences = [] if as_json else [printable(sentence) for sentence in found.sentences]
    lines = [line for text in (*about, *sentences) for line in textwrap.wrap(text, _WIDTH, subsequent_indent="  ")]
    analysing.show_figure(name, figure, found.columns(), lines, out=out, as_json=as_json)


def _about_landscapes(found: Landscapes) -> Iterable[str]:
    yield f"{found.height_name} after {found.schedule} on {found.task}, {found.row_words}"
    for landscape in found.losses:
        seeds = plural(len(landscape.seeds), "seed")
        yield (
            f"{_name(landscape.name)}: {landscape.centre:.4g} at the weights, {landscape.rise:+.4g} at a distance of "
            f"{found.positions[-1]:g} ({seeds})"
        )
    if found.losses:
        yield UNMOVED


def _about_curves(found: TrainingCurves) -> Iterable[str]:
    yield f"test {found.metric} after {schedule_words(found.steps, found.milestones)} on {found.task}"
    for curve in found.losses:
        yield f"{_name(curve.name)}: {_tested(curve.test, curve.test_deviation, found.metric)}" + _over(
            len(curve.trained), len(curve.scores)
        )


def _about_pictures(found: Representations) -> Iterable[str]:
    rows = plural(found.rows, "test row")
    yield f"{rows} of {found.task} after {found.schedule}, seed {found.seed}"
    for picture in found.losses:
        features = plural(picture.features, "input")
        line = f"{_name(picture.name)}: test {found.metric} {shown_metric(picture.test, found.metric)}"
        if picture.same_class_neighbours is not None:
            line += f"; {picture.same_class_neighbours:.1%} of rows have their nearest row in their own class"
        yield f"{line} ({features} of {printable(picture.layer)})"


def _about_rates(found: RateCurves) -> Iterable[str]:
    if found.lines:
        schedule = schedule_words(found.steps, found.milestones)
        yield (
            f"test {printable(found.metric)} after {schedule} on {printable(found.task)}, "
            f"{plural(found.seeds, 'seed')} at each rate"
        )
    for line in found.lines:
        best = found.best(line)
        if best is None:
            yield f"{_name(line.name)}: at every rate something diverged, or nothing was found"
        else:
            tested = _tested(best.mean, best.deviation, found.metric)
            yield f"{_name(line.name)}: best at {best.rate:g}, {tested}"


def _tested(mean: float, deviation: float, metric: str) -> str:
    if math.isnan(mean):
        return "diverged"
    spread = "" if math.isnan(deviation) else f" ± {shown_metric(deviation, metric)}"
    return shown_metric(mean, metric) + spread


def _over(trained: int, all_of_them: int) -> str:
    lost = all_of_them - trained
    return f" over {plural(trained, 'seed')}" + (f", {lost} of {all_of_them} diverged" if lost else "")


def _name(name: str) -> str:
    return shorten(printable(name), _LONGEST_NAME)


def _given(milestones: list[int] | None) -> tuple[int, ...] | None:
    return tuple(milestones) if milestones else None  # Typer makes an empty list of an option that is not given


def _announce(sentence: str) -> None:
    typer.echo(printable(sentence), err=True)


def _losses(names: str | None, task: Task) -> list[str]:
    return usual_losses(task) if names is None else listed_losses(names, task)
