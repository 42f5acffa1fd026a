"""Command lines: every command and option that the program itself lists, with edge values.

Whatever would compute for long has a light value unless an edit changes it; the executor `ray` is left out, as it would
start a cluster for each case.
"""

import random
import shutil
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import typer.main

from evomal.cli import app
from evomal.settings import SearchSettings
from tests.fuzzing import task_files
from tests.fuzzing.corpus import TINY
from tests.fuzzing.oracle import Box, Command
from tests.fuzzing.values import KINDS_OF_FILE, TEXTS, replace_file, text

_TASKS = ("diabetes", *(f"{task_files.NAME}:{function}" for function in task_files.FUNCTIONS))
_FOLDERS = ("run", "found", ".", "empty", "missing", "loss.json", "fifo", "link")
_FILES = ("loss.json", "classes.json", "run/best.json", "odd\udcff.json", "escape\x1b[2J.json", "new\nline.json",
"missing.json",
          "run", "fifo", "device", "link", "settings.toml", "run/run.sqlite")  # fmt: skip
_LOSSES = (
    "mse",
    "huber",
    "focal:gamma=1",
    "ce",
    "strong",
    "mae",
    "huber:delta=-1",
    "huber:delta=nan",
    "focal:forged=1",
)
_NUMBERS = ("0", "1", "2", "3", "-1", "0.5", "-0.5", "nan", "inf", "-inf", "1e308", "1e-320", *(str(2**n) for n in (31,
32, 63, 64)),
            "9" * 30, "9" * 400)  # fmt: skip
_SENSIBLE: dict[str, Sequence[str]] = {
    "tasks": _TASKS, "task": _TASKS, "source": (*_TASKS, "found"), "to": _TASKS, "folder": _FOLDERS,
    "folders": _FOLDERS,
    "file": _FILES, "loss": (*_LOSSES, *_FILES), "losses": (*_LOSSES, *_FILES, "mse,huber", "mse,,", "mse,mse"),
    "model": ("mlp:hidden=4", "linear", "mlp", "paper", "mlp:hidden=0", "mlp:hidden=x", "mlp:forged=1",
    "mlp:hidden=9e9"),
    "method": ("evomal", "random", "gp-lfl", "ml3", "taylorglo", "baseline"), "methods": ("random", "baseline", "a,b",
    ","),
    "preset": ("quick", "paper"), "device": ("cpu", "auto", "cuda", "cuda:99", "mps"), "executor": ("local",),
    "config": ("settings.toml", *_FILES), "out": ("made", "run", "loss.json", "empty", "missing/made", "../up", "link",
    "fifo"),
    "data": ("empty", "missing", "loss.json", "fifo"), "optimizer": ("sgd", "adam", "adamw"), "of": ("loss", "train",
    "test"),
    "precision": ("float32", "tf32", "bfloat16"), "name": ("diabetes", "mnist", "forged"), "rates": ("0.1", "0.1,0.01",
    "0"),
    "family": ("forged", "taylor", "focal"), "seed": ("0", "1", str(2**63 - 1), str(2**63), str(2**64)),
    "host": ("127.0.0.1", "localhost", "::1", "0.0.0.0", "256.1.1.1"), "port": ("0", *_NUMBERS),
    "seed_with": _LOSSES, "classes": ("3", "1", "0", "10,20", *_NUMBERS),
    "changes": ("population=1", "lr=nan", "filters=dead", "max_time=1s", "device=cpu", "precision=bfloat16"),
}  # fmt: skip
_SENSIBLE_OF = {
    ("export", "to"): ("python", "jax", "onnx", "latex", "sympy"), ("campaign", "file"): ("campaign.toml", *_FILES),
}  # fmt: skip
_USUAL = {
    "tasks": "diabetes", "task": "diabetes", "source": "diabetes", "to": "diabetes", "folder": "run", "folders": "run",
    "file": "loss.json", "loss": "mse", "losses": "mse", "model": "mlp:hidden=4", "name": "diabetes",
}  # fmt: skip
_LIGHT = {"steps": "1", "seeds": "1", "search_seeds": "1", "rounds": "1", "points": "3", "samples": "10",
"method": "random",
          "out": "made", "port": "0"}  # fmt: skip
_LIGHT_OF = {("analyse smoothing-cost", "classes"): "2,3", ("export", "out"): "made.py", ("report", "out"): "page.html",
             ("campaign", "file"): "campaign.toml"}  # fmt: skip
_CAMPAIGN = "\n".join(
    (
        'title = "Tiny"', 'about = "One search."', 'hardware = "any"', 'presets = ["quick"]', 'methods = ["random"]',
        'losses = ["mse"]', "search_seeds = 1", "seeds = 1", "tune_lr = 0", "[settings]",
        *(f"{key} = {value}" for key, value in TINY.items()), "[[tasks]]", 'name = "one"', 'title = "One"',
        'task = "diabetes"', 'model = "mlp:hidden=4"', "",
    )
)  # fmt: skip
_SHARE_OF_PROCESSES = 0.003


class CommandLines:
    """A working folder with a run, a comparison, losses, settings, tasks and odd files, and a command line."""

    def __init__(self, corpus: Path) -> None:
        self._corpus = corpus
        self._commands = dict(commands())
        self._settings = list(SearchSettings.model_fields)

    def draw(self, rng: random.Random) -> list[Any]:
        """The command, values of its options, and words that do not belong there."""
        name = rng.choice(sorted(self._commands))
        parameters = self._commands[name]
        edits: list[Any] = [("command", name)]
        for parameter in rng.sample(parameters, min(len(parameters), rng.choice([0, 1, 1, 2, 2, 3, 5]))):
            edits.append(("option", parameter.name, self._value(name, parameter, rng)))
        if name == "search" and rng.random() < 0.7:
            edits.append(("option", "dry_run", True))
        if rng.random() < 0.15:
            edits.append(("word", rng.random(), rng.choice([*TEXTS, "--help", "--version", "--forged=1", "-x", "-h"])))
        if rng.random() < 0.05:
            edits.append(("drop", rng.random()))
        if rng.random() < 0.1:
            edits.append(("terminal", "ascii"))
        if rng.random() < 0.03:
            edits.append(
                ("kind", rng.choice(["loss.json", "settings.toml", task_files.NAME, "run"]), rng.choice(KINDS_OF_FILE))
            )
        if rng.random() < _SHARE_OF_PROCESSES and name != "serve":  # which would run until it is stopped
            edits.append(("process",))
        return edits

    def _value(self, command: str, parameter: Any, rng: random.Random) -> Any:
        if getattr(parameter, "is_flag", False):
            return rng.choice([True, False])
        sensible = _SENSIBLE_OF.get((command, parameter.name)) or _SENSIBLE.get(parameter.name, _NUMBERS)
        if parameter.name == "changes" and rng.random() < 0.6:
            return f"{rng.choice(self._settings)}={rng.choice(_NUMBERS) if rng.random() < 0.5 else text(rng)}"
        value = rng.choice(sensible) if rng.random() < 0.7 else text(rng)
        # What a user names as output is written: a case must not name a folder of this machine.
        return value.lstrip("/") if parameter.name in ("out", "data") else value

    def stage(self, edits: Sequence[Any], box: Box) -> list[Any]:
        """Everything that words name, and the command."""
        self._write_files(box)
        command = next((edit[1] for edit in edits if edit[0] == "command"), "runs")
        given = {edit[1]: edit[2] for edit in edits if edit[0] == "option"}
        words = _words(command, self._commands[command], given)
        encoding, is_process = "utf-8", False
        for kind, *values in edits:
            if kind == "word":
                words.insert(round(values[0] * len(words)), values[1])
            elif kind == "drop" and words:
                del words[int(values[0] * len(words))]
            elif kind == "terminal":
                encoding = values[0]
            elif kind == "process":
                is_process = True
            elif kind == "kind":
                replace_file(box.here / values[0], values[1], box.outside)
        return [Command(tuple(words), encoding, is_process)]

    def _write_files(self, box: Box) -> None:
        here, losses = box.here, sorted((self._corpus / "losses").iterdir())
        shutil.copytree(self._corpus / "run", here / "run")
        shutil.copytree(self._corpus / "compared", here / "found")
        for name in ("loss.json", "odd\udcff.json", "escape\x1b[2J.json", "new\nline.json"):
            shutil.copy(losses[3], here / name)
        shutil.copy(losses[0], here / "classes.json")
        (here / "empty").mkdir()
        (here / task_files.NAME).write_text(task_files.SOURCE)
        (here / "campaign.toml").write_text(_CAMPAIGN)
        (here / "settings.toml").write_text("".join(f"{key} = {value}\n" for key, value in TINY.items()))
        for name in ("link", "fifo", "device"):
            replace_file(here / name, name, box.outside)


def commands() -> Iterator[tuple[str, list[Any]]]:
    """The names of all commands, with what the program says of their arguments and options."""
    waiting = [("", typer.main.get_command(app))]
    while waiting:
        name, command = waiting.pop()
        inner = getattr(command, "commands", None)
        if inner is None:
            yield name, [parameter for parameter in command.params if parameter.name != "help"]
        else:
            waiting += [(f"{name} {part}".strip(), below) for part, below in inner.items()]


def _words(command: str, parameters: Sequence[Any], given: dict[str, Any]) -> list[str]:
    """The words of a command: values that are given, light ones, and those without which it would not begin."""
    words = command.split()
    names = {parameter.name for parameter in parameters}
    usual = {**_USUAL, **_LIGHT, **{name: value for (place, name), value in _LIGHT_OF.items() if place == command}}
    for parameter in parameters:
        name, is_flag = parameter.name, getattr(parameter, "is_flag", False)
        is_wanted = parameter.required or name in _LIGHT or (command, name) in _LIGHT_OF or name == "model"
        if name == "model" and ":" in str(given.get("tasks", given.get("task", given.get("to", "")))):
            is_wanted = False  # a task from a file brings its own
        if command == "transfer" and name == "loss" and "source" not in given:
            is_wanted = True
        value = given.get(name, usual.get(name) if is_wanted else None)
        if is_flag:
            flags = parameter.opts if value else parameter.secondary_opts
            words += flags[:1] if value is not None else []
        elif value is not None:
            value = "local" if value == "ray" or "executor=" in str(value) else str(value)
            words += [value] if parameter.param_type_name == "argument" else [parameter.opts[0], value]
    if "changes" in names and command != "resume":
        tiny = [
            f"{key}={value}" for key, value in TINY.items() if not str(given.get("changes", "")).startswith(f"{key}=")
        ]
        words += [word for change in tiny for word in ("--set", change)]
    return words
