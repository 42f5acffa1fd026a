"""Loss files: valid ones edited as JSON or as bytes, expressions from a grammar, and JSON of any kind."""

import json
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

import evomal
from evomal.expression.prefix import MAX_SIZE
from evomal.losses.exporting.formats import MAX_ONNX_NODES
from tests.fuzzing import json_edits
from tests.fuzzing.oracle import Box, Command, Function
from tests.fuzzing.values import KINDS_OF_FILE, json_value, replace_file, text

_UNARY, _BINARY = ("abs", "log", "sqrt", "square", "tanh", "sign"), ("add", "sub", "mul", "aq", "min", "max")
_LEAVES = ("y", "f", "1", "-1", "0", "forged", "", "é", "f.__class__", "2")
_ONNX = ("export", "loss.json", "--to", "onnx", "--out", "made.onnx")
_COMMANDS = (
    ("card", "loss.json"), ("card", "loss.json", "--json"), ("card", "loss.json", "--out", "made"),
    ("export", "loss.json"), ("export", "loss.json", "--to", "latex"), ("export", "loss.json", "--to", "sympy"),
    ("export", "loss.json", "--to", "jax", "--json"), ("analyse", "shapes", "loss.json", "--out", "made"),
    ("train", "diabetes", "--loss", "loss.json", "--model", "mlp:hidden=4", "--seeds", "1", "--steps", "1"),
)  # fmt: skip
_LARGEST = (
    *((MAX_ONNX_NODES + more, _ONNX) for more in (-300, -1, 0, 1, 2, 500)),
    *((MAX_SIZE + more, _ONNX) for more in (-1, 0, 1)),
    *((MAX_SIZE, words) for words in _COMMANDS),
)
"""Nodes of a tree on both sides of a limit, and the command that reads it."""


class LossFiles:
    """Reads each file; now and then a command reads it, too."""

    def __init__(self, corpus: Path) -> None:
        self._files = [path.read_bytes() for path in sorted((corpus / "losses").iterdir())]

    def draw(self, rng: random.Random) -> list[Any]:
        """Which file, edits of it as JSON, then as bytes, then of the kind of file."""
        if rng.random() < 0.001:  # trees about as large as they may be, each of which takes seconds
            size, words = rng.choice(_LARGEST)
            edits = [("replace", ("expression",), _chain(rng, size)), ("replace", ("weights",), None)]
            return [("file", 0), *(("json", edit) for edit in edits), ("command", words)]
        number = rng.randrange(len(self._files))
        document = json.loads(self._files[number])
        edits: list[Any] = [("file", number)]
        way = rng.random()
        if way < 0.5:
            edits += [("json", json_edits.drawn(document, rng)) for _ in range(rng.randint(1, 4))]
        elif way < 0.7:
            edits.append(("json", ("replace", ("expression",), _tree(rng, rng.choice([1, 3, 6, 9])))))
            edits.append(("json", ("replace", ("weights",), [rng.gauss(1, 1) for _ in range(rng.randrange(20))])))
        elif way < 0.75:
            edits.append(("json", ("replace", (), json_value(rng))))
        if way >= 0.75 or rng.random() < 0.1:
            edits += [("bytes", json_edits.drawn_bytes(rng)) for _ in range(rng.randint(1, 3))]
        if rng.random() < 0.005:
            edits.append(("kind", rng.choice(KINDS_OF_FILE)))
        if rng.random() < 0.01:
            edits.append(("command", rng.choice(_COMMANDS)))
        return edits

    def stage(self, edits: Sequence[Any], box: Box) -> list[Any]:
        """The file as `loss.json`."""
        parts: dict[str, list[Any]] = {"file": [], "json": [], "bytes": [], "kind": [], "command": []}
        for name, edit in edits:
            parts[name].append(edit)
        content = self._files[(parts["file"] or [0])[0]]
        if parts["json"]:
            content = json_edits.written(json_edits.edited(json.loads(content), parts["json"])).encode()
        path = box.here / "loss.json"
        path.write_bytes(json_edits.edited_bytes(content, parts["bytes"]))
        for kind in parts["kind"]:
            replace_file(path, kind, box.outside)
        commands = [Command(words) for words in parts["command"]]
        return [Function(lambda: _used(path), "load_loss and what can be done with a loss"), *commands]


def _used(path: Path) -> None:
    """Load the loss, compute with it, describe it, and save it: it must be the same again."""
    loss = evomal.load_loss(path)
    torch.manual_seed(0)
    output = torch.randn(4, 3, requires_grad=True)
    target = torch.rand(4, 3).round() if loss.kind == "multilabel" else torch.tensor([0, 1, 2, 0])
    if loss.kind == "regression":
        target = torch.randn(4, 3)
    if loss.weight is None or len(loss.weight) == 3:
        value = loss(output, target)
        assert isinstance(value, torch.Tensor)
        value.sum().backward()
    assert isinstance(loss.formula(), str)
    assert isinstance(repr(loss), str)
    again = path.with_name("again.json")
    evomal.save_loss(loss, again)
    evomal.save_loss(evomal.load_loss(again), path.with_name("twice.json"))
    assert again.read_bytes() == path.with_name("twice.json").read_bytes()


def _chain(rng: random.Random, size: int) -> str:
    """A tree of so many nodes, no higher than it must be."""
    if size == 1:
        return rng.choice(("y", "f"))
    if size == 2:
        return f"{rng.choice(_UNARY)}({_chain(rng, 1)})"
    first = (size - 1) // 2
    return f"{rng.choice(_BINARY)}({_chain(rng, first)}, {_chain(rng, size - 1 - first)})"


def _tree(rng: random.Random, height: int) -> str:
    if height == 0 or rng.random() < 0.1:
        return rng.choice(_LEAVES[:4]) if rng.random() < 0.95 else rng.choice(_LEAVES)
    if rng.random() < 0.01:
        return text(rng)
    inner = height - 1
    if rng.random() < 0.5:
        return f"{rng.choice(_UNARY)}({_tree(rng, inner)})"
    return f"{rng.choice(_BINARY)}({_tree(rng, inner)},{' ' * rng.randrange(2)}{_tree(rng, inner)})"
