"""The `evomal` command: its subcommands, errors and exit codes."""

import os
import re
import sys
import traceback
from collections.abc import Callable
from typing import Annotated, Any, NoReturn

import typer

from evomal import __version__
from evomal.cli import (
    analysing,
    analysing_trainings,
    campaigning,
    comparing,
    doctor,
    listing,
    reporting,
    searching,
    training,
)
from evomal.cli.options import echo, settings_help
from evomal.cli.streams import replace_unencodable, show_warnings_as_sentences
from evomal.errors import EvomalError, InputError, StoppedError
from evomal.extras import missing_library
from evomal.text import short_repr
from evomal.users_code import described, place_of_error

BAD_INPUT, FAILED, INTERRUPTED = 2, 1, 130
_DEBUG = "--debug"
_EMPTY_OPTION = re.compile(r"--[a-z-]+=")
_MISUSE: Any = typer.BadParameter.__base__
"""The class of all errors of Typer about the command line; it has no public name."""

app = typer.Typer(help="Learn loss functions from data.", no_args_is_help=True, pretty_exceptions_enable=False)


def main() -> None:
    """Run the command; an error is printed as one sentence and sets the exit code, with a traceback for `--debug`."""
    is_debugging = _DEBUG in sys.argv[1:]
    sys.argv[1:] = [word for word in sys.argv[1:] if word != _DEBUG]  # it may be given anywhere
    replace_unencodable()
    show_warnings_as_sentences()
    try:
        _require_current_folder()
        _require_encodable_arguments()
        _require_no_empty_argument()
        _run_command()
    except SystemExit as end:
        if is_debugging and end.__context__ is not None:
            lines = "".join(traceback.format_exception(end.__context__)).splitlines()
            echo(*lines, err=True)
        raise


def _require_current_folder() -> None:
    """Fail if the current folder, from which relative paths start, was removed."""
    try:
        os.getcwd()
    except OSError as error:
        _fail(f"the current folder cannot be read: {error.strerror}", BAD_INPUT)


def _require_encodable_arguments() -> None:
    """Fail if an argument cannot be encoded for the system; a shell cannot pass such an argument, but Python can."""
    for word in sys.argv[1:]:
        try:
            os.fsencode(word)
        except UnicodeEncodeError as error:
            _fail(f"an argument cannot be encoded: {short_repr(word)} ({error.reason})", BAD_INPUT)


def _require_no_empty_argument() -> None:
    """Fail if an argument is empty, as with a variable that is not set: as a path it would be the current folder."""
    words = sys.argv[1:]
    for before, word in zip(["", *words], words, strict=False):
        if not word or _EMPTY_OPTION.fullmatch(word):
            name = word.rstrip("=") or (before if before.startswith("-") else "")
            _fail(f"{name or 'an argument'} is empty: is a variable not set?", BAD_INPUT)


def _run_command() -> None:
    try:
        code = app(prog_name="evomal", standalone_mode=False)
    except StoppedError as error:
        _fail(error, INTERRUPTED)
    except InputError as error:
        _fail(error, BAD_INPUT)
    except EvomalError as error:
        _fail(error, FAILED)
    except _MISUSE as error:
        _fail(_misuse_sentence(error), BAD_INPUT)
    except typer.Abort:  # Typer raises this when the input ends
        _fail("input ended", FAILED)
    except Exception as error:
        if not place_of_error(error):
            command = " ".join(["evomal", *_given_command()])
            if isinstance(error, ModuleNotFoundError) and (reason := missing_library(command, error)) is not error:
                _fail(reason, BAD_INPUT)
            raise  # a defect, which must be seen
        _fail(f"your code failed: {described(error)}", FAILED)
    if code == INTERRUPTED:  # Typer returns this after Ctrl-C without a message
        _fail("interrupted", INTERRUPTED)
    sys.exit(code)


def _misuse_sentence(misuse: Any) -> str:
    """Returns the message of Typer, which it would print in a box, as one sentence."""
    if type(misuse).__name__ == "NoArgsIsHelpError":  # without arguments; the help has been printed already
        typer.echo(misuse.format_message(), nl=bool(misuse.format_message()))
        sys.exit(BAD_INPUT)
    message = " ".join(misuse.format_message().split()).rstrip(".").replace(". Did you mean", ": did you mean")
    command = " ".join(["evomal", *_given_command()]) if misuse.ctx is None else misuse.ctx.command_path
    return f"{message[0].lower()}{message[1:]} (see {command} --help)"


def _given_command() -> list[str]:
    """Returns the command and the subcommand of this process."""
    words = sys.argv[1:]
    is_group = words[:1] in ([name] for name in _GROUPS)
    return [word for word in words[: 1 + is_group] if not word.startswith("-")]


def _fail(reason: object, code: int) -> NoReturn:
    echo(f"evomal: {reason}", err=True)
    sys.exit(code)


def _version(wanted: bool) -> None:
    if wanted:
        echo(f"evomal {__version__}")
        raise typer.Exit


@app.callback()
def _options(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and exit.")
    ] = False,
    debug: Annotated[
        bool, typer.Option(_DEBUG, help="Print the traceback of an error; may be given anywhere.")
    ] = False,
) -> None:
    pass


_COMMANDS: dict[str, Callable[..., None]] = {
    "search": searching.search_losses,
    "resume": searching.resume_search,
    "headroom": searching.show_headroom,
    "runs": listing.list_runs,
    "train": training.train_models,
    "compare": comparing.compare_losses,
    "transfer": comparing.transfer_losses,
    "campaign": campaigning.run_campaign_file,
    "card": reporting.show_card,
    "report": reporting.write_report,
    "serve": reporting.serve_pages,
    "export": reporting.export_loss,
    "losses": listing.list_losses,
    "procedures": listing.list_procedures,
    "tasks": listing.list_tasks,
    "models": listing.list_models,
    "methods": listing.list_methods,
    "doctor": doctor.examine,
}
_GROUPS: dict[str, tuple[str, dict[str, Callable[..., None]]]] = {
    "analyse": ("Draw a figure of losses, runs or trainings.", analysing.KINDS | analysing_trainings.KINDS),
    "data": ("Download datasets and find their files.", {"fetch": listing.fetch_data, "path": listing.data_path}),
}
for _name, _command in _COMMANDS.items():
    app.command(_name, epilog=settings_help() if _name == "search" else None)(_command)
for _name, (_help, _commands) in _GROUPS.items():
    _group = typer.Typer(help=_help, no_args_is_help=True)
    app.add_typer(_group, name=_name)
    for _kind, _command in _commands.items():
        _group.command(_kind)(_command)
