"""The commands that list what there is: losses, tasks, models, methods, runs and the files of datasets."""

import dataclasses
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.console import Console
from rich.padding import Padding
from rich.text import Text

from evomal.cli.options import AsJson, DataFolder, echo, echo_json
from evomal.text import plural, printable, shorten, value_text

if TYPE_CHECKING:
    from evomal.runs import Run

_LONGEST_LINE = 1_000  # characters


def list_losses(as_json: AsJson = False) -> None:
    """List the named losses, with their formulas and options."""
    from evomal.losses import CATALOGUE, load_loss
    from evomal.zoo import zoo_names

    rows: list[dict[str, Any]] = []
    for row in CATALOGUE.values():
        loss = row()
        options = {name: getattr(loss, name) for name in loss.option_names}
        rows.append({"name": row.name, "formula": row.definition, "options": options, "purpose": row.purpose})
    for name in zoo_names():
        learned = load_loss(f"zoo:{name}")
        purpose = f"learned on {learned.provenance.get('task', 'an unnamed task')}"
        rows.append({"name": f"zoo:{name}", "formula": learned.formula(), "options": {}, "purpose": purpose})
    if as_json:
        echo_json(rows)
        return
    console = Console(highlight=False)
    for entry in rows:
        shown = "".join(f"  {name}={value_text(value)}" for name, value in entry["options"].items())
        console.print(f"[bold]{entry['name']}[/bold]{shown}", soft_wrap=True)
        for line in (entry["formula"], entry["purpose"]):
            shown_line = Text(line, style="dim" if line is entry["purpose"] else "")
            console.print(Padding(shown_line, (0, 0, 0, 4), expand=False))
        console.print()
    console.print("p: probability of the target, pi: share of its class, C: number of classes", style="dim")
    console.print("y: target, f: output", style="dim")


def list_procedures(as_json: AsJson = False) -> None:
    """List what can follow a loss in comparisons, as in ce+early-stopping."""
    from evomal.engine.procedures import PROCEDURES

    rows: list[dict[str, Any]] = [
        {
            "name": name,
            "purpose": found.purpose,
            "citation": found.citation,
            "kinds": list(found.kinds),
            "options": {field.name: field.default for field in dataclasses.fields(found)},
        }
        for name, found in PROCEDURES.items()
    ]
    if as_json:
        echo_json(rows)
        return
    for row in rows:
        echo(f"{row['name']}" + "".join(f"  {name}={value_text(value)}" for name, value in row["options"].items()))
        echo(
            *textwrap.wrap(f"{row['purpose']} ({row['citation']})", 80, initial_indent="    ", subsequent_indent="    ")
        )
        echo(f"    for {', '.join(row['kinds'])}")


def list_tasks(as_json: AsJson = False) -> None:
    """List the built-in tasks, with their sizes and models."""
    from evomal.tasks import TASKS
    from evomal.tasks.datasets import DATASETS

    if as_json:
        rows = []
        for name, task in TASKS.items():
            about = {key: getattr(DATASETS[name], key) for key in ("kind", "rows", "test_rows", "shape", "classes")}
            rows.append({"name": name, **about, "models": task.models, "default": task.default})
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


def list_models(as_json: AsJson = False) -> None:
    """List the models, with their options and references."""
    from evomal.tasks import MODELS

    if as_json:
        keys = ("purpose", "citation", "options")
        echo_json([{"name": name, **{key: getattr(row, key) for key in keys}} for name, row in MODELS.items()])
        return
    console = Console(highlight=False)
    for name, model in MODELS.items():
        shown = "".join(f"  {option}={value_text(value)}" for option, value in model.options.items())
        console.print(f"[bold]{name}[/bold]{shown}", soft_wrap=True)
        console.print(_indented(f"{model.purpose} ({model.citation})"), style="dim")


def list_methods(as_json: AsJson = False) -> None:
    """List the search methods."""
    from evomal.methods import METHODS

    if as_json:
        echo_json([{"name": name, "purpose": method.purpose} for name, method in METHODS.items()])
        return
    for name, method in METHODS.items():
        echo(name, f"    {method.purpose}")


def list_runs(
    folder: Annotated[Path, typer.Argument(help="The folder to list, at any depth.", show_default=False)],
    as_json: AsJson = False,
) -> None:
    """List the runs in a folder, with their states and best results."""
    from evomal.runs import find_runs

    runs = find_runs(folder)
    if as_json:
        echo_json([_run_data(run) for run in runs])
        return
    for line in (line for run in runs for line in _run_lines(run)):  # a record may contain anything
        echo(shorten(printable(line), _LONGEST_LINE))
    if not runs:
        echo(f"there is no run in {folder}")


def _run_data(run: "Run") -> dict[str, Any]:
    scores = None if run.scores is None else list(run.scores.values)
    best = run.best and {"fitness": run.best.fitness, "genome": run.best.genome, "scores": scores}
    return {
        "folder": str(run.folder), "state": str(run.state), "sentence": run.problem or run.ending or "",
        "tasks": run.task_names, "method": run.settings.get("method"),
        "seed": run.settings.get("seed"), "generations": run.generations, "candidates": len(run.candidates),
        "best": best,
    }  # fmt: skip


def _run_lines(run: "Run") -> Iterator[str]:
    from evomal.runs.results import score_text

    best = "" if run.best is None else f", best {run.shown_metric.text(run.best.fitness)}"
    if run.scores is not None:
        best += f" ({score_text(run.scores, run.shown_metric)} in the final)"
    yield f"{run.folder}: {run.state}, {plural(run.generations, 'generation')}{best}"
    if method := run.settings.get("method"):
        yield f"    {' + '.join(run.task_names)}, {method}, seed {run.settings.get('seed')}"
    if sentence := run.problem or run.ending:
        yield f"    {sentence}"


def fetch_data(
    name: Annotated[str, typer.Argument(help="A dataset.", show_default=False)],
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Download the files of a dataset and verify their checksums."""
    from evomal.tasks.datasets import data_folder, fetch

    fetch(name, data)
    folder = data_folder(data) / name
    if as_json:
        echo_json({"name": name, "folder": str(folder)})
    else:
        echo(f"{name} is in {folder}")


def data_path(
    name: Annotated[str | None, typer.Argument(help="A dataset (default: all).")] = None,
    data: DataFolder = None,
    as_json: AsJson = False,
) -> None:
    """Print the folder of a dataset's files."""
    from evomal.tasks.datasets import data_folder, dataset_named

    folder = data_folder(data)
    if name is not None:
        folder /= dataset_named(name).name
    if as_json:
        echo_json({"name": name, "folder": str(folder)})
    else:
        echo(folder)


def _indented(text: str) -> str:
    return textwrap.fill(text, 80, initial_indent="    ", subsequent_indent="    ")
