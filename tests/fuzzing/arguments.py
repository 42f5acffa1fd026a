"""Python arguments: every public function, class and method, by its signature, with values of every wrong type."""

import functools
import inspect
import random
import shutil
import types
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

import evomal
from evomal.errors import EvomalError
from evomal.settings import SearchSettings
from tests.fuzzing.corpus import TINY
from tests.fuzzing.oracle import Box, Function
from tests.fuzzing.values import NUMBERS, TEXTS

_ROWS = torch.linspace(-1.0, 1.0, 120).reshape(40, 3)
_LEFT_OUT = {
    "Expression.fold": "calls what it is given, whose errors are the caller's",
    "Loss": "abstract",
    "SearchSettings.given": "called by functions, with their own arguments",
    **dict.fromkeys(("Comparison", "CurvePoint", "Score", "SearchResult", "Task"), "made by evomal, not by callers"),
    **dict.fromkeys(
        ("Units.standardised", "Units.raw", "Task.to_raw"), "arithmetic on numbers of the caller's own kind"
    ),
    **dict.fromkeys(
        ("Hardships.kept_rows", "Hardships.noisy_labels", "Hardships.outlying_targets"), "given checked data"
    ),
    **dict.fromkeys(
        (
            "Metric.check",
            "Metric.cost",
            "Metric.of_rows",
            "Metric.record",
            "metrics.chosen_metric",
            "metrics.counted",
            "metrics.usual_metrics",
            "Recipe.changed",
            "Recipe.for_steps",
            "Recipe.warmup_steps",
            "Run.loss",
            "Run.value",
            "SearchResult.value",
        ),
        "called by evomal, with what it has made",
    ),
}
"""Public names that are not called, and why."""
_FREE = ("progress", "listener", "report", "fragment", "graphs", "keep_model", "channels_last")
"""Parameters that take an object of the caller's own: a truth value, or methods that are called."""


def _small() -> torch.nn.Module:
    return torch.nn.Linear(3, 1)


def _task() -> Any:
    return evomal.Task.from_arrays(_ROWS, _ROWS.sum(1, keepdim=True), model=_small, kind="regression")


def _batches(seed: int) -> Any:
    return iter([(_ROWS, _ROWS[:, :1])])


def _raising(*arguments: Any, **named: Any) -> Any:
    raise RuntimeError("forged\nforged \x1b[2J")


class _Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("forged")


_USUAL: dict[str, Callable[[], Any]] = {
    "task": _task, "to": lambda: "python", "loss": lambda: "mse", "path": lambda: "loss.json",
    "name": lambda: "diabetes",
    "model": lambda: _small, "x": lambda: _ROWS, "y": lambda: _ROWS.sum(1, keepdim=True), "kind": lambda: "regression",
    "steps": lambda: 1, "seeds": lambda: 1, "search_seeds": lambda: 1, "losses": lambda: ["huber"],
    "method": lambda: "random",
    "methods": list, "source": lambda: None, "text": lambda: "abs(f)", "tokens": lambda: ["abs", "f"],
    "expression": lambda: "square(sub(f, y))",
    "theta": lambda: [0.0] * 8, "texts": lambda: ["population=2"], "content": dict, "device": lambda: "cpu",
    "start": lambda: 0,
    "function": lambda: (lambda output, target: 0.0), "higher_is_better": lambda: True,
    "other": lambda: evomal.Expression.parse("f"),
    "train": lambda: list(zip(_ROWS, _ROWS[:, :1], strict=True)), "validation": lambda: 0.2, "test": lambda: 0.2,
    "prediction": lambda: _ROWS, "target": lambda: _ROWS, "values": lambda: _ROWS, "predictions": lambda: _ROWS,
    "metric": lambda: "mae",
    "rows": lambda: np.arange(9), "labels": lambda: np.arange(9) % 3, "targets": lambda: np.linspace(0, 1, 9),
    "classes": lambda: 3,
    "seed": lambda: 0, "layers": lambda: [[[0.5] * 2] * 3, [[0.25] * 3] * 3, [[1.0] * 3]], "value": lambda: 0.5,
    "xp": lambda: "torch", "weights": lambda: None, "number": lambda: 0,
    "generator": lambda: torch.Generator(), "units": lambda: None, "settings": lambda: None, "preset": lambda: "quick",
    "folder": lambda: "run", "state": lambda: "complete", "search": lambda: "run", "searches": lambda: ["run"],
    "metrics": lambda: {"mae": 1.0}, "groups": lambda: [0, 1] * 20, "multiple": lambda: 2.0,
}  # fmt: skip
_USUAL_OF: dict[tuple[str, str], Callable[[], Any]] = {
    ("starting_weights", "generator"): lambda: np.random.default_rng(0),
    ("starting_weights", "expression"): lambda: evomal.Expression.parse("abs(f)"),
    ("transfer", "to"): _task, ("export", "loss"): lambda: evomal.losses.named_loss("ce"), ("named_loss",
    "name"): lambda: "ce",
    ("save_loss", "loss"): lambda: evomal.losses.named_loss("ce"), ("load_task", "model"): lambda: "mlp:hidden=4",
    ("SearchSettings.preset", "name"): lambda: "quick", ("Task.from_arrays", "metric"): lambda: None,
    ("Expression.parse", "source"): lambda: "abs(f)",
    ("Task.from_datasets", "validation"): _USUAL["train"], ("Task.from_datasets", "test"): _USUAL["train"],
    **{("Task.from_loaders", place): lambda: _batches for place in ("train", "validation", "test")},
    **{(f"Task.from_{kind}", name): lambda: None for kind in ("datasets", "loaders") for name in ("target", "classes")},
    ("plot.shapes", "losses"): lambda: ["loss.json"],
    ("SearchSettings.given", "changes"): dict, ("SearchSettings.from_file", "path"): lambda: "settings.toml",
}  # fmt: skip
_CONTRACT = ("kind", "weight", "ignore_index", "reduction")
_SETTINGS = (*SearchSettings.model_fields, "forged")
_FURTHER = {"named_loss": (*_CONTRACT, "gamma", "forged"), "export": ("classes", "probabilities", "forged")}
"""Names for `**`: those of settings, or for losses those of the contract, unless a function has others."""
_CHANGES = {"search": TINY, "compare": TINY, "transfer": TINY}
_EDGES: dict[str, Callable[[], Any]] = {
    **{f"the number {number!r:.30}": (lambda number=number: number) for number in NUMBERS},
    **{f"the text {text!r:.60}": (lambda text=text: text) for text in (*TEXTS, "\0")},
    "None": lambda: None, "True": lambda: True, "an empty list": list, "an empty object": dict,
    "a list of None": lambda: [None],
    "bytes": lambda: b"\xff", "a set": lambda: {1}, "an object": object, "a class": lambda: int,
    "a module": lambda: types,
    "something unprintable": _Unprintable, "a function that raises": lambda: _raising, "a generator": lambda: iter([1]),
    "a path": lambda: Path("missing"), "the path of a folder": lambda: Path("."),
    "the path of a FIFO": lambda: Path("fifo"),
    "a NumPy number": lambda: np.float32(0.5), "a NumPy whole number": lambda: np.int64(1),
    "an array": lambda: np.zeros((40, 3)),
    "an empty array": lambda: np.zeros((0, 3)), "an array of texts": lambda: np.array(["forged"] * 40),
    "a ragged list": lambda: [[1.0], [1.0, 2.0]] * 20,
    "an array of objects": lambda: np.array([object()] * 40), "a complex number": lambda: 1j,
    "a tensor": lambda: torch.zeros(40, 3), "a scalar tensor": lambda: torch.tensor(1.0),
    "a tensor of NaN": lambda: torch.full((40, 3), torch.nan), "a bfloat16 tensor": lambda: _ROWS.bfloat16(),
    "a meta tensor": lambda: torch.zeros(40, 3, device="meta"),
    "a sparse tensor": lambda: _ROWS.to_sparse(), "a whole tensor": lambda: torch.ones(40, dtype=torch.long),
    "an image tensor": lambda: torch.zeros(40, 3, 4, 4),
    "a tensor with gradient": lambda: torch.zeros(40, 3, requires_grad=True), "a deep list": lambda: _deep(500),
    "a circular list": lambda: _circular(),
    "a module of torch": lambda: torch.nn.Linear(3, 1), "a loss of torch": lambda: torch.nn.MSELoss(),
    "a loss": lambda: evomal.losses.named_loss("huber"), "a task": _task,
    "an expression": lambda: evomal.Expression.parse("abs(f)"), "list of numbers": lambda: [1.0, 2.0],
    "list of texts": lambda: ["forged", "\x1b[2J"],
    "list of huge numbers": lambda: [10**400, -1.0], "object of texts": lambda: {"forged": "forged"},
    "object with other keys": lambda: {1: 2}, "a model factory of nothing": lambda: (lambda: None),
}  # fmt: skip


_EXAMPLES: dict[str, Callable[[], Any]] = {
    "Comparison": functools.cache(
        lambda: evomal.compare(_task(), losses=["huber"], seeds=1, device="cpu", final_steps=1)
    ),
    "Expression": lambda: evomal.Expression.parse("abs(sub(f, y))"), "Hardships": evomal.Hardships,
    "Metric": lambda: _task().metric, "Recipe": lambda: _task().recipe, "Run": lambda: evomal.load_run("run"),
    "Score": functools.cache(lambda: evomal.train(_task(), "mse", steps=1, device="cpu")),
    "SearchResult": functools.cache(lambda: evomal.search(_task(), method="random", device="cpu", **TINY)),
    "SearchSettings": evomal.SearchSettings, "Task": _task, "Units": evomal.Units,
}  # fmt: skip
"""An object of each public class whose methods are called."""


def _deep(levels: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(levels):
        found = [found]
    return found


def _circular() -> list[Any]:
    found: list[Any] = []
    found.append(found)
    return found


def callables() -> dict[str, Any]:
    """Every public function, class and method by its name."""
    return {name: found for name, found in _found() if name not in _LEFT_OUT}


def _found() -> Iterator[tuple[str, Any]]:
    for module in (evomal, evomal.losses):
        for name in module.__all__:
            value = getattr(module, name)
            if isinstance(value, types.ModuleType) and value is not evomal.losses:
                yield from _functions_of(name, value)
            if not callable(value) or (isinstance(value, type) and issubclass(value, EvomalError)):
                continue
            yield name, value
            if isinstance(value, type):
                yield from _methods_of(name, value)


def _functions_of(name: str, module: types.ModuleType) -> Iterator[tuple[str, Any]]:
    """The public functions that a module of `evomal.__all__` defines."""
    for own, value in vars(module).items():
        if not own.startswith("_") and inspect.isfunction(value) and value.__module__ == module.__name__:
            yield f"{name}.{own}", value


def _methods_of(name: str, value: type) -> Iterator[tuple[str, Any]]:
    """The public methods that a class has from evomal; those of an object, if there is an example of it."""
    example = _EXAMPLES.get(name)
    for method, raw in inspect.getmembers_static(value):
        if method.startswith("_") or (name, method) == ("Task", "model"):
            continue
        if isinstance(raw, classmethod | staticmethod):
            if (raw.__func__.__module__ or "").startswith("evomal"):
                yield f"{name}.{method}", getattr(value, method)
        elif example is not None and inspect.isfunction(raw) and (raw.__module__ or "").startswith("evomal"):
            yield f"{name}.{method}", _of_example(example, raw)


def _of_example(example: Callable[[], Any], method: Any) -> Any:
    """The method of an example that is made when it is called."""

    def call(*arguments: Any, **named: Any) -> Any:
        return method(example(), *arguments, **named)

    signature = inspect.signature(method)
    call.__signature__ = signature.replace(parameters=[*signature.parameters.values()][1:])  # type: ignore[attr-defined]
    return call


class Arguments:
    """A call with usual arguments of which some are replaced."""

    def __init__(self, corpus: Path) -> None:
        self._callables = callables()
        self._loss, self._run = sorted((corpus / "losses").iterdir())[0], corpus / "run"

    def draw(self, rng: random.Random) -> list[Any]:
        """The function, and arguments by name."""
        name = rng.choice(sorted(self._callables))
        names = [parameter.name for parameter in _parameters(self._callables[name]) if parameter.name not in _FREE]
        names += ["**"] if any(p.kind is p.VAR_KEYWORD for p in _signature(self._callables[name])) else []
        few = rng.sample(names, min(len(names), rng.choice([1, 1, 1, 2, 3])))
        edits: list[Any] = [("function", name)]
        for given in few:
            if given == "**":
                given = rng.choice(
                    _FURTHER.get(name, _CONTRACT if isinstance(self._callables[name], type) else _SETTINGS)
                )
            edits.append(("argument", given, rng.choice(sorted(_EDGES))))
        return edits

    def stage(self, edits: Sequence[Any], box: Box) -> list[Any]:
        """The call; the working folder holds a loss file, a run and settings."""
        shutil.copytree(self._run, box.here / "run")
        (box.here / "loss.json").write_bytes(self._loss.read_bytes())
        (box.here / "settings.toml").write_text("population = 2\n")
        name = next((edit[1] for edit in edits if edit[0] == "function"), "load_loss")
        given = {edit[1]: edit[2] for edit in edits if edit[0] == "argument"}
        function = self._callables[name]
        return [
            Function(
                lambda: _called(name, function, given), f"{name}({', '.join(f'{k}={v}' for k, v in given.items())})"
            )
        ]


def _called(name: str, function: Any, given: dict[str, str]) -> Any:
    short = name.rpartition(".")[2]
    arguments: dict[str, Any] = dict(_CHANGES.get(name, {}))
    for parameter in _parameters(function):
        usual = (
            _USUAL_OF.get((name, parameter.name))
            or _USUAL_OF.get((short, parameter.name))
            or _USUAL.get(parameter.name)
        )
        is_needed = parameter.default is parameter.empty or parameter.name in (
            "steps",
            "seeds",
            "search_seeds",
            "method",
            "device",
        )
        if is_needed and usual is not None:
            arguments[parameter.name] = usual()
    arguments |= {argument: _EDGES[value]() for argument, value in given.items()}
    positional = []
    for parameter in _parameters(function):
        if parameter.name in arguments and parameter.kind in (parameter.POSITIONAL_ONLY, parameter.VAR_POSITIONAL):
            value = arguments.pop(parameter.name)
            is_list = parameter.kind is parameter.VAR_POSITIONAL and parameter.name not in given
            positional += value if is_list else [value]
    inspect.signature(function).bind(*positional, **arguments)  # a call that Python itself would refuse proves nothing
    return function(*positional, **arguments)


def _signature(function: Any) -> list[inspect.Parameter]:
    return list(inspect.signature(function).parameters.values())


def _parameters(function: Any) -> list[inspect.Parameter]:
    return [p for p in _signature(function) if p.kind is not p.VAR_KEYWORD]


def unknown_parameters() -> set[str]:
    """Required parameters without a usual value: add one, so that calls get beyond them."""
    return {
        f"{name}({parameter.name})"
        for name, function in callables().items()
        for parameter in _parameters(function)
        if parameter.default is parameter.empty
        and parameter.name not in _USUAL
        and (name, parameter.name) not in _USUAL_OF
    }
