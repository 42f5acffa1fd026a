"""`evomal card`: one page about one loss file."""

import re
from pathlib import Path
from typing import Annotated

import typer

from evomal.cli.options import AsJson, echo_json
from evomal.figures.loss_shape import draw_loss
from evomal.figures.style import save_figure
from evomal.files import create_folder, write_atomically
from evomal.report.card import Card, loss_card, terminal_lines
from evomal.report.report_page import report_page
from evomal.report.run_report import run_report


def show_card(
    file: Annotated[Path, typer.Argument(help="A loss file.", show_default=False)],
    out: Annotated[Path | None, typer.Option(help="Folder for the card as HTML and Markdown, and its figure.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what a loss is: formula, shape, properties, where it comes from, how it compares."""
    card = loss_card(file)
    files = [] if out is None else _written(card, out)
    if as_json:
        echo_json({**card.as_data(), "files": [str(path) for path in files]})
        return
    for line in (*terminal_lines(card), *(f"wrote {path}" for path in files)):
        typer.echo(line)


def _written(card: Card, folder: Path) -> list[Path]:
    base = create_folder(folder) / f"{_harmless(card.name)}-card"
    figures = save_figure(draw_loss(card.shape), base, card.shape.columns())
    texts = {".html": card.html(), ".md": card.markdown(f"{base.name}.svg")}
    paths = [base.with_name(base.name + suffix) for suffix in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_atomically(path, text.encode())
    return [*paths, *figures]


def _harmless(name: str) -> str:
    """A name that no shell and no web server stumbles over."""
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name).lstrip(".-") or "loss"


NAME = "report.html"


def write_report(
    folder: Annotated[
        Path, typer.Argument(help="A run, a comparison, or a folder of several runs.", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option(help=f"The file to write (default: DIR/{NAME}).")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a page with verdict, formula, figures, the best losses, settings, and the command that repeats it."""
    report = run_report(folder, progress=True)
    page = folder / NAME if out is None else out
    content = report_page(report).encode()
    write_atomically(page, content)
    if as_json:
        echo_json({**report.as_data(), "files": [str(page)]})
    else:
        typer.echo(f"wrote {page} ({len(content) / 1000:.0f} kB)")
