"""What was typed, for the files of a command that nothing else in them could repeat."""

from pathlib import Path

import typer

from evomal.commands.whole_paths import whole_file, whole_task


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
            words.append(_whole(value))
        elif is_switch:
            words.append(parameter.opts[0] if value else parameter.secondary_opts[0])
        else:
            for single in value if isinstance(value, list | tuple) else [value]:
                words += [parameter.opts[0], _whole(single)]
    return words


def _whole(value: object) -> str:
    """Also of tasks, `file.py:function`, and of each of several losses."""
    if isinstance(value, Path):
        return str(value.resolve())
    text = str(value)
    path, _, _ = text.rpartition(":")
    return whole_task(text) if path and Path(path).is_file() else ",".join(map(whole_file, text.split(",")))
