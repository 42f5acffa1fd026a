"""The command line: what people type, checked, done, and printed."""

import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from rich.console import Console

from evomal.errors import EvomalError, InputError
from evomal.losses import CATALOGUE, load_loss
from evomal.losses.exporting import FORMATS, export
from evomal.whole_files import write_whole

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130

app = typer.Typer(
    help="Loss functions learned from data.",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
)

AsJson = Annotated[bool, typer.Option("--json", help="Print the result as JSON.")]


def main() -> None:
    """Run the command; every error ends in one sentence and an exit code, never in a traceback."""
    try:
        app()
    except InputError as error:
        _fail(error, BAD_INPUT)
    except EvomalError as error:
        _fail(error, FAILED)
    except KeyboardInterrupt:
        _fail("interrupted", INTERRUPTED)


def _fail(reason: object, code: int) -> NoReturn:
    typer.echo(f"evomal: {reason}", err=True)
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
        loss = row.make()
        options = {name: getattr(loss, name) for name in loss.option_names}
        rows.append({"name": row.name, "formula": row.formula, "options": options, "purpose": row.purpose})
    if as_json:
        typer.echo(json.dumps(rows, indent=2))
        return
    console = Console(highlight=False)
    for entry in rows:
        shown = "".join(f"  {name}={_plain(value)}" for name, value in entry["options"].items())
        console.print(f"[bold]{entry['name']}[/bold]{shown}", soft_wrap=True)
        for line in (entry["formula"], entry["purpose"]):
            console.print(f"    {line}", style="dim" if line is entry["purpose"] else "", markup=False, soft_wrap=True)
        console.print()
    console.print("p: probability of the target, C: number of classes, y: target, f: output", style="dim")


@app.command("export")
def export_loss(
    file: Annotated[Path, typer.Argument(help="A loss file.", show_default=False)],
    to: Annotated[str, typer.Option(help=f"One of {', '.join(FORMATS)}.")] = "python",
    out: Annotated[Path | None, typer.Option(help="Write to this file instead of the terminal.")] = None,
    classes: Annotated[int | None, typer.Option(help="Number of classes of an ONNX graph (default 10).")] = None,
    as_json: AsJson = False,
) -> None:
    """Print a loss in a form that needs no evomal: Python, JAX, ONNX, LaTeX or SymPy."""
    exported = export(load_loss(file), to, **({} if classes is None else {"classes": classes}))
    if isinstance(exported, bytes) and (out is None or as_json):
        raise InputError(f"{to} is binary: name a file to write it to with --out")
    content = exported if isinstance(exported, bytes) else f"{str(exported).rstrip()}\n".encode()
    if out is not None:
        write_whole(out, content)
    if as_json:
        typer.echo(json.dumps({"format": to, "file": None if out is None else str(out), "text": content.decode()}))
    elif out is None:
        typer.echo(content.decode(), nl=False)
    else:
        typer.echo(f"wrote {out} ({len(content)} bytes)")


def _plain(value: object) -> str:
    return f"{value:g}" if isinstance(value, float) else str(value).lower()
