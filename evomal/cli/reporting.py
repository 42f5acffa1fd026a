"""`evomal card`, `export`, `report` and `serve`: loss files and runs in forms for people and other programs."""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from evomal.cli.options import AsJson, LossFile, echo, echo_json
from evomal.errors import InputError
from evomal.files import create_folder, write_atomically

if TYPE_CHECKING:
    from evomal.report.card import Card

_REPORT = "report.html"


def show_card(
    file: LossFile,
    out: Annotated[Path | None, typer.Option(help="Folder for the card as HTML and Markdown, with a figure.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what is known about a loss: formula, shape, properties, provenance, comparison and transfer."""
    from evomal.report.card import loss_card, terminal_lines

    card = loss_card(file)
    files = [] if out is None else _written(card, out)
    if as_json:
        echo_json({**card.as_data(), "files": [str(path) for path in files]})
        return
    for line in (*terminal_lines(card), *(f"wrote {path}" for path in files)):
        echo(line)


def _written(card: "Card", folder: Path) -> list[Path]:
    from evomal.figures.loss_shape import draw_loss
    from evomal.figures.style import save_figure

    # An underscore for characters that are special in a shell or an address.
    name = re.sub(r"[^A-Za-z0-9._-]+", "_", card.name).lstrip(".-") or "loss"
    base = create_folder(folder) / f"{name}-card"
    figures = save_figure(draw_loss(card.shape), base, card.shape.columns())
    texts = {".html": card.html(), ".md": card.markdown(f"{base.name}.svg")}
    paths = [base.with_name(base.name + suffix) for suffix in texts]
    for path, text in zip(paths, texts.values(), strict=True):
        write_atomically(path, text.encode())
    return [*paths, *figures]


def export_loss(
    file: LossFile,
    to: Annotated[str, typer.Option(help="The format: python, jax, onnx, latex or sympy.")] = "python",
    out: Annotated[Path | None, typer.Option(help="File to write to (default: the terminal).")] = None,
    classes: Annotated[int | None, typer.Option(help="Number of classes of an ONNX graph (default: any).")] = None,
    probabilities: Annotated[
        bool, typer.Option("--probabilities", help="Make an ONNX graph that takes class probabilities as targets.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """Export a loss for use without evomal, as Python, JAX, ONNX, LaTeX or SymPy."""
    from evomal.losses import load_loss
    from evomal.losses.exporting import export

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
        echo(*content.decode().rstrip("\n").split("\n"))
    else:
        echo(f"wrote {out} ({len(content)} bytes)")


def _text(exported: object) -> str:
    try:
        return str(exported).rstrip()
    except RecursionError:
        raise InputError("this expression is nested too deeply to be printed as SymPy: export it as python") from None


def write_report(
    folder: Annotated[
        Path, typer.Argument(help="The folder of a run, of a comparison, or of several runs.", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option(help=f"File to write to (default: {_REPORT} in the folder).")] = None,
    as_json: AsJson = False,
) -> None:
    """Write a web page about a run or a comparison: verdict, formula, figures, best losses and settings."""
    from evomal.report.report_page import report_page
    from evomal.report.run_report import run_report

    report = run_report(folder)
    page = folder / _REPORT if out is None else out
    content = report_page(report).encode()
    write_atomically(page, content)
    if as_json:
        echo_json({**report.as_data(), "files": [str(page)]})
    else:
        echo(f"wrote {page} ({len(content) / 1000:.0f} kB)")


def serve_pages(
    folder: Annotated[
        Path, typer.Argument(help="The folder of runs and comparisons, at any depth.", show_default=False)
    ],
    host: Annotated[
        str, typer.Option(help="The address to listen on; 0.0.0.0 lets other machines read.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(help="The port; 0 takes any free one.", min=0, max=65535)] = 8123,
    names: Annotated[
        list[str] | None,
        typer.Option("--name", help="A further host name under which browsers reach the page; may be repeated."),
    ] = None,
    trust: Annotated[
        bool,
        typer.Option(
            "--trust", help="Let the buttons run the Python files and join the Ray clusters that records name."
        ),
    ] = False,
    open_browser: Annotated[bool, typer.Option("--open", help="Open the page in a browser.")] = False,
) -> None:
    """Show runs and comparisons in a browser while they run; Ctrl-C ends it.

    Everyone who can reach the page can read it. Its buttons (stop, resume, compare) need the token that is printed.
    """
    from evomal.server.serving import serve

    serve(
        folder, host=host, port=port, names=names or [], trust=trust, open_browser=open_browser,
        say=lambda sentence: echo(sentence, err=True),
    )  # fmt: skip
