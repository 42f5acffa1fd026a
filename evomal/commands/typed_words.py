"""What was typed, for the files of a command that nothing else in them could repeat."""

from pathlib import Path

import typer

from evomal.commands.whole_paths import whole_file, whole_task
from evomal.losses.catalogue import is_specified

_TASKS = ("task", "to", "source")
_LOSSES = ("losses", "loss")
"""Parameters of commands that may name files, as the functions call them."""


def typed_words(context: typer.Context, *, without: tuple[str, ...]) -> list[str]:
    """The command with the arguments and options that were given, those `without` left out, defaults too.

    They are put together from what was understood, not taken from the process: the order may be another, a program
    that calls the command gives no words of its own, and files and folders have their whole paths.
    """
    words = ["evomal", str(context.info_name)]
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if name in without or source is None or source.name != "COMMANDLINE":
            continue
        value, is_switch = context.params[name], getattr(parameter, "is_flag", False)
        if parameter.param_type_name == "argument":
            words.append(_whole(name, value))
        elif is_switch:
            words.append(parameter.opts[0] if value else parameter.secondary_opts[0])
        else:
            for single in value if isinstance(value, list | tuple) else [value]:
                words += [parameter.opts[0], _whole(name, single)]
    return words


def _whole(name: str, value: object) -> str:
    """A value with whole paths; a name stays one, although a file may be called the same."""
    if isinstance(value, Path):
        return str(value.resolve())
    if name in _TASKS:
        return whole_task(str(value))
    if name in _LOSSES:
        parts = [part.strip() for part in str(value).split(",")]
        return ",".join(part if is_specified(part) else whole_file(part) for part in parts)
    return str(value)
