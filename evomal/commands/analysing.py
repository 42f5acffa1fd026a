"""`evomal analyse`: what its kinds have in common."""

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from evomal.commands.json_output import echo_json
from evomal.report.style import save_figure
from evomal.whole_files import made_folder

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Out = Annotated[Path, typer.Option(help="Folder for the figure (SVG, PDF, PNG) and its data (CSV).")]
FIGURES = Path("figures")


def show_figure(
    name: str,
    figure: "Figure",
    columns: Mapping[str, Sequence[Any]],
    summary: Iterable[str],
    *,
    out: Path,
    as_json: bool,
) -> None:
    """Save a figure as `out/name.*`, then print what it shows in a few lines, or its data as JSON."""
    files = [str(path) for path in save_figure(figure, made_folder(out) / name, columns)]
    if as_json:
        echo_json({"kind": name, "summary": list(summary), "data": columns, "files": files})
        return
    for line in (*summary, *(f"wrote {path}" for path in files)):
        typer.echo(line)
