"""`evomal serve`: the live page."""

from pathlib import Path
from typing import Annotated

import typer

from evomal.cli.options import echo


def serve_pages(
    folder: Annotated[
        Path, typer.Argument(help="The folder of runs and comparisons, at any depth.", show_default=False)
    ],
    host: Annotated[
        str, typer.Option(help="The address to listen at; 0.0.0.0 lets other machines read.")
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

    Everybody who can reach the page can read it. Its buttons (stop, resume, compare) need the token that is printed.
    """
    from evomal.server.serving import serve

    serve(
        folder, host=host, port=port, names=names or [], trust=trust, open_browser=open_browser,
        say=lambda sentence: echo(sentence, err=True),
    )  # fmt: skip
