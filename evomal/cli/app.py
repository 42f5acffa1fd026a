"""The command line: what people type, checked, done, and printed."""

import importlib.metadata
import statistics
import sys
import textwrap
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from evomal.cli import analysing, analysing_trainings, comparing, reporting, searching
from evomal.cli import reporting as carding
from evomal.cli.options import AsJson, chosen_task, echo_json
from evomal.engine import Score, TrainingSettings, train
from evomal.errors import EvomalError, InputError, StoppedError
from evomal.files import write_atomically
from evomal.losses import CATALOGUE, load_loss
from evomal.losses.exporting import FORMATS, export
from evomal.tasks import MODELS, TASKS, Hardships, Task
from evomal.tasks.datasets import DATASETS, data_folder, dataset_named, fetch
from evomal.tasks.metrics import metric_text
from evomal.text import plural, printable

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130
_MISUSE: Any = typer.BadParameter.__base__
"""What Typer raises for everything that cannot be understood; it has no public name."""

app = typer.Typer(
    help="Loss functions learned from data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)


def main() -> None:
    """Run the command; every error ends in one sentence and an exit code, never in a traceback."""
    try:
        code = app(prog_name="evomal", standalone_mode=False)
    except StoppedError as error:
        _fail(error, INTERRUPTED)
    except InputError as error:
        _fail(error, BAD_INPUT)
    except EvomalError as error:
        _fail(error, FAILED)
    except _MISUSE as error:
        _fail(_sentence_of(error), BAD_INPUT)
    except typer.Abort:  # Typer makes this of input that ends
        _fail("input ended", FAILED)
    if code == INTERRUPTED:  # Typer makes this of Ctrl-C, and says nothing
        _fail("interrupted", INTERRUPTED)
    sys.exit(code)


def _sentence_of(misuse: Any) -> str:
    """What Typer would say in a box, below how the command is used."""
    if type(misuse).__name__ == "NoArgsIsHelpError":  # nothing was typed; rich has shown the help already
        typer.echo(misuse.format_message(), nl=bool(misuse.format_message()))
        sys.exit(BAD_INPUT)
    message = " ".join(misuse.format_message().split()).rstrip(".").replace(". Did you mean", ": did you mean")
    command = " ".join(["evomal", *_typed_commands()]) if misuse.ctx is None else misuse.ctx.command_path
    return f"{message[0].lower()}{message[1:]} (see {command} --help)"


def _typed_commands() -> list[str]:
    """The command, and the one below it, that were typed."""
    words = sys.argv[1:]
    is_group = words[:1] in (["analyse"], ["data"])
    return [word for word in words[: 1 + is_group] if not word.startswith("-")]


def _fail(reason: object, code: int) -> NoReturn:
    typer.echo(printable(f"evomal: {reason}"), err=True)
    sys.exit(code)


def _version(wanted: bool) -> None:
    if wanted:
        typer.echo(f"evomal {importlib.metadata.version('evomal')}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and stop.")
    ] = False,
) -> None:
    pass


@app.command("losses")
def list_losses(as_json: AsJson = False) -> None:
    """List the losses that have a name, with their formulas and options."""
    rows: list[dict[str, Any]] = []
    for row in CATALOGUE.values():
        loss = row()
        options = {name: getattr(loss, name) for name in loss.option_names}
        rows.append({"name": row.name, "formula": row.definition, "options": options, "purpose": row.purpose})
    if as_json:
        echo_json(rows)
        return
    console = Console(highlight=False)
    for entry in rows:
        shown = "".join(f"  {name}={_plain(value)}" for name, value in entry["options"].items())
        console.print(f"[bold]{entry['name']}[/bold]{shown}", soft_wrap=True)
        for line in (entry["formula"], entry["purpose"]):
            console.print(f"    {line}", style="dim" if line is entry["purpose"] else "", markup=False, soft_wrap=True)
        console.print()
    console.print("p: probability of the target, C: number of classes, y: target, f: output", style="dim")


@app.command("tasks")
def list_tasks(as_json: AsJson = False) -> None:
    """List the built-in tasks, with their sizes and models."""
    rows = [
        {
            "name": name,
            "kind": DATASETS[name].kind,
            "rows": DATASETS[name].rows,
            "test_rows": DATASETS[name].test_rows,
            "shape": list(DATASETS[name].shape),
            "classes": DATASETS[name].classes,
            "models": list(task.models),
            "default": task.default,
        }
        for name, task in TASKS.items()
    ]
    if as_json:
        echo_json(rows)
        return
    console = Console(highlight=False)
    for name, task in TASKS.items():
        info = DATASETS[name]
        sizes = f"{info.rows}" + (f" + {info.test_rows} test" if info.test_rows else "")
        shape = "×".join(map(str, info.shape))
        classes = f", {info.classes} classes" if info.classes else ""
        console.print(f"[bold]{name}[/bold]  {info.kind}, {sizes} rows of {shape}{classes}", soft_wrap=True)
        listed = [name for name in task.models if name != task.default]
        console.print(_indented(", ".join([f"{task.default} (default)", *listed])), style="dim")


@app.command("models")
def list_models(as_json: AsJson = False) -> None:
    """List the models, with their options and where they come from."""
    rows = [
        {"name": name, "purpose": model.purpose, "citation": model.citation, "options": dict(model.options)}
        for name, model in MODELS.items()
    ]
    if as_json:
        echo_json(rows)
        return
    console = Console(highlight=False)
    for name, model in MODELS.items():
        shown = "".join(f"  {option}={_plain(value)}" for option, value in model.options.items())
        console.print(f"[bold]{name}[/bold]{shown}", soft_wrap=True)
        console.print(_indented(f"{model.purpose} ({model.citation})"), style="dim")


app.command("search")(searching.search_losses)
app.command("resume")(searching.resume_search)
app.command("runs")(searching.list_runs)
app.command("methods")(searching.list_methods)
app.command("compare")(comparing.compare_losses)
app.command("transfer")(comparing.transfer_losses)
app.command("card")(carding.show_card)
app.command("report")(reporting.write_report)

analyse_app = typer.Typer(help="Draw one of the paper's figures, from runs, losses or tasks.", no_args_is_help=True)
app.add_typer(analyse_app, name="analyse")
for kind, command in (analysing.KINDS | analysing_trainings.KINDS).items():
    analyse_app.command(kind)(command)

data_app = typer.Typer(help="The files of the datasets.", no_args_is_help=True)
app.add_typer(data_app, name="data")

DataFolder = Annotated[Path | None, typer.Option("--data", help="Folder of the files (default: $EVOMAL_DATA).")]


@data_app.command("fetch")
def fetch_data(
    name: Annotated[str, typer.Argument(help="A dataset.", show_default=False)], data: DataFolder = None
) -> None:
    """Download a dataset's files and check them."""
    fetch(name, data)
    typer.echo(f"{name} is in {data_folder(data) / name}")


@data_app.command("path")
def data_path(name: Annotated[str | None, typer.Argument(help="A dataset.")] = None, data: DataFolder = None) -> None:
    """Print the folder where the files are looked for."""
    folder = data_folder(data)
    typer.echo(folder if name is None else folder / dataset_named(name).name)


@app.command("train")
def train_models(
    tasks: Annotated[list[str], typer.Argument(help="Built-in tasks, or file.py:function.", show_default=False)],
    loss: Annotated[str, typer.Option(help="A loss's name or a loss file.")],
    model: Annotated[str | None, typer.Option(help='A model, such as "mlp:hidden=64".')] = None,
    seeds: Annotated[int, typer.Option(help="How many seeds, from 0 on.", min=1)] = 5,
    steps: Annotated[int | None, typer.Option(help="Training steps (default: the task's).")] = None,
    optimizer: Annotated[str, typer.Option(help="sgd, adam or adamw.")] = "sgd",
    lr: Annotated[float | None, typer.Option(help="Learning rate (default: the task's).")] = None,
    momentum: Annotated[float | None, typer.Option(help="Momentum of SGD (default: the task's).")] = None,
    nesterov: Annotated[bool | None, typer.Option(help="Nesterov's momentum (default: the task's).")] = None,
    weight_decay: Annotated[float | None, typer.Option(help="Weight decay (default: the task's).")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Samples a step (default: the task's).")] = None,
    milestone: Annotated[
        list[int] | None, typer.Option(help="Step at which the learning rate is divided by ten; may be repeated.")
    ] = None,
    label_noise: Annotated[float, typer.Option(help="Share of wrong training labels.")] = 0.0,
    asymmetric: Annotated[bool, typer.Option(help="Wrong labels are those of the next class.")] = False,
    outliers: Annotated[float, typer.Option(help="Share of training targets thrown far off.")] = 0.0,
    imbalance: Annotated[float, typer.Option(help="Rarest over commonest class in training.")] = 1.0,
    fraction: Annotated[float, typer.Option(help="Share of the training samples kept.")] = 1.0,
    device: Annotated[str, typer.Option(help="auto, cpu or cuda.")] = "auto",
    precision: Annotated[str, typer.Option(help="float32, tf32 or bfloat16.")] = "float32",
    channels_last: Annotated[bool, typer.Option("--channels-last", help="Images with their channels last.")] = False,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Train a task's model with a loss over several seeds, and judge it on the test split."""
    hardships = Hardships(label_noise, asymmetric, outliers, imbalance, fraction)
    chosen = [chosen_task(task, model, data, hardships) for task in tasks]
    settings = TrainingSettings(
        steps=steps,
        optimizer=optimizer,
        lr=lr,
        momentum=momentum,
        nesterov=nesterov,
        weight_decay=weight_decay,
        batch_size=batch_size,
        milestones=tuple(milestone) if milestone else None,
        device=device,
        precision=precision,  # type: ignore[typeddict-item]  # checked where it is used, as for any other caller
        channels_last=channels_last,
        progress=True,
    )
    results = [_trained_task(task, loss, seeds, settings, shown=not as_json) for task in chosen]
    if as_json:
        echo_json(results[0] if len(results) == 1 else results)


def _trained_task(task: Task, loss: str, seeds: int, settings: TrainingSettings, *, shown: bool) -> dict[str, Any]:
    """Train over the seeds, printing each score as it comes and then the summary; all of it as data."""
    scores = []
    for seed in range(seeds):
        settings["seed"] = seed
        score = train(task, loss, **settings)
        scores.append(score)
        if shown:
            typer.echo(f"{task.name}, seed {seed}: {_scored(score, task.metric.name)}")
    trained = [score.test for score in scores if not score.diverged]
    if shown and trained:
        metric, deviation = task.metric.name, statistics.stdev(trained) if len(trained) > 1 else None
        average = metric_text(statistics.mean(trained), metric, deviation)
        typer.echo(f"{task.name}: test {metric} {average} over {plural(len(trained), 'seed')}")
    if shown and len(trained) < seeds:
        typer.echo(f"{task.name}: {seeds - len(trained)} of {seeds} seeds diverged")
    if shown and (copies := task.record.get("equal_rows_across_splits")):
        typer.echo(f"{task.name}: {copies} rows of validation and test have an equal row in an earlier split")
    record = {"task": dict(task.record), "metric": task.metric.name, "loss": loss}
    return {**record, "scores": [score.to_dict() for score in scores]}


def _scored(score: Score, metric: str) -> str:
    if score.diverged:
        return f"diverged: {score.sentence}"
    others = ", ".join(f"{name} {metric_text(value, name)}" for name, value in score.metrics.items() if name != metric)
    test, validation = (metric_text(value, metric) for value in (score.test, score.validation))
    return f"test {metric} {test}, validation {validation} ({others})"


@app.command("export")
def export_loss(
    file: Annotated[Path, typer.Argument(help="A loss file.", show_default=False)],
    to: Annotated[str, typer.Option(help=f"One of {', '.join(FORMATS)}.")] = "python",
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of the terminal.")] = None,
    classes: Annotated[int | None, typer.Option(help="Number of classes of an ONNX graph (default 10).")] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Class probabilities as targets of an ONNX graph.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Print a loss in a form that needs no evomal: Python, JAX, ONNX, LaTeX or SymPy."""
    options = {"classes": classes, "probabilities": probabilities or None}
    exported = export(load_loss(file), to, **{name: value for name, value in options.items() if value is not None})
    if isinstance(exported, bytes) and (out is None or as_json):
        raise InputError(f"{to} is binary: name a file to write it to with --out")
    content = exported if isinstance(exported, bytes) else f"{_text(exported)}\n".encode()
    if out is not None:
        write_atomically(out, content)
    if as_json:
        echo_json({"format": to, "file": None if out is None else str(out), "text": content.decode()})
    elif out is None:
        typer.echo(content.decode(), nl=False)
    else:
        typer.echo(f"wrote {out} ({len(content)} bytes)")


def _text(exported: object) -> str:
    try:
        return str(exported).rstrip()
    except RecursionError:
        raise InputError("this expression is nested too deeply to be printed as SymPy: export it as python") from None


def _indented(text: str) -> str:
    return textwrap.fill(text, 80, initial_indent="    ", subsequent_indent="    ")


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower()
