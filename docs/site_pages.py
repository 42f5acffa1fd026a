"""Pages of the site that are made from their one source, and formulas as MathML (a hook of MkDocs, see mkdocs.yml)."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File, Files
from typer.main import get_command

from evomal.cli.app import app
from evomal.settings import PRESETS, describe, setting_text

ROOT = Path(__file__).parents[1]


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages that no file holds."""
    pages = {
        "settings.md": settings_page(),
        "command-line.md": command_page(),
        "contributing.md": _from_root("CONTRIBUTING.md"),
        "changes.md": _from_root("CHANGELOG.md"),
    }
    for name, content in pages.items():
        files.append(File.generated(config, name, content=content))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Formulas, fenced as `math` in LaTeX, become MathML, which browsers draw without a script."""
    return re.sub(r"(?ms)^```math\n(.*?)^```$", lambda found: convert(found[1], display="block"), markdown)


def _from_root(name: str) -> str:
    """A file beside the folder of pages; its links are relative to the root."""
    return (ROOT / name).read_text().replace("](docs/", "](")


def settings_page() -> str:
    """All settings of a search, from `evomal.settings.describe`."""
    lines = [
        "---",
        "hide: [toc]",
        "---",
        "# Settings",
        "",
        "Keyword arguments of `evomal.search`, keys of `--set key=value`, and keys of a TOML file for `--config`.",
        "On the command line a list has commas, and `none` stands for no value.",
        "",
        f"| setting | meaning | type | {' | '.join(PRESETS)} |",
        f"|---|---|---|{'---|' * len(PRESETS)}",
    ]
    for setting in describe():
        values = " | ".join(f"`{setting_text(setting.presets[preset])}`" for preset in PRESETS)
        lines.append(f"| `{setting.name}` | {_cell(setting.description)} | {_cell(setting.type)} | {values} |")
    return "\n".join(lines) + "\n"


def command_page() -> str:
    """All commands with their options, from the command line itself."""
    lines = ["# Command line", "", "`evomal COMMAND --help` prints the same.", ""]
    for words, command in _commands(get_command(app), ("evomal",)):
        lines += [
            f"## {' '.join(words)}",
            "",
            *_help_lines(command),
            "",
            "| option | meaning | default |",
            "|---|---|---|",
        ]
        for parameter in command.params:
            if parameter.name != "help":
                lines.append(_parameter_row(parameter))
        lines.append("")
    return "\n".join(lines)


def _commands(command: Any, words: tuple[str, ...]) -> Iterator[tuple[tuple[str, ...], Any]]:
    inner = getattr(command, "commands", None)
    if inner is None:
        yield words, command
        return
    for name, further in inner.items():
        yield from _commands(further, (*words, name))


def _help_lines(command: Any) -> list[str]:
    return [line.replace("\b", "").strip() for line in (command.help or "").splitlines()]


def _parameter_row(parameter: Any) -> str:
    is_argument = parameter.param_type_name == "argument"
    names = parameter.name.upper() if is_argument else ", ".join([*parameter.opts, *parameter.secondary_opts])
    default = parameter.default
    shown = "" if default is None or default is False or callable(default) else f"`{default}`"
    return f"| `{names}` | {_cell(getattr(parameter, 'help', None) or '')} | {shown} |"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|").replace("<", "&lt;").replace("[", "\\[")
