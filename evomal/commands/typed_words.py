"""What was typed, for the files of a command that nothing else in them could repeat."""

import typer


def typed_words(context: typer.Context, *, without: tuple[str, ...]) -> list[str]:
    """The command with the arguments and options that were given, those `without` left out, defaults too.

    They are put together from what was understood, not taken from the process: the order may be another, and a program
    that calls the command gives no words of its own.
    """
    words = ["evomal", str(context.info_name)]
    for parameter in context.command.params:
        name = str(parameter.name)
        source = context.get_parameter_source(name)
        if name in without or source is None or source.name != "COMMANDLINE":
            continue
        value, is_switch = context.params[name], getattr(parameter, "is_flag", False)
        if parameter.param_type_name == "argument":
            words.append(str(value))
        elif is_switch:
            words.append(parameter.opts[0] if value else parameter.secondary_opts[0])
        else:
            for single in value if isinstance(value, list | tuple) else [value]:
                words += [parameter.opts[0], str(single)]
    return words
