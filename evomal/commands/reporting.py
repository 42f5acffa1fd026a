"""`evomal report`: one page about a run, several runs, or a comparison."""

from pathlib import Path
from typing import Annotated

import typer

from evomal.commands.json_output import AsJson, echo_json
from evomal.report.report_page import report_page
from evomal.report.report_pdf import report_pdf
from evomal.report.run_report import run_report
from evomal.whole_files import write_whole

NAME = "report.html"


def write_report(
    folder: Annotated[
        Path, typer.Argument(help="A run, a comparison, or a folder of several runs.", show_default=False)
    ],
    out: Annotated[Path | None, typer.Option(help=f"The file to write (default: DIR/{NAME}).")] = None,
    pdf: Annotated[bool, typer.Option("--pdf", help="Write it as PDF, too, beside the page.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a page with verdict, formula, figures, the best losses, settings, and the command that repeats it."""
    report = run_report(folder, progress=True)
    page = folder / NAME if out is None else out
    contents = {page: report_page(report).encode()}
    if pdf:
        contents[page.with_suffix(".pdf")] = report_pdf(report)
    for path, content in contents.items():
        write_whole(path, content)
    if as_json:
        echo_json({**report.as_data(), "files": [str(path) for path in contents]})
        return
    for path, content in contents.items():
        typer.echo(f"wrote {path} ({len(content) / 1000:.0f} kB)")
