"""The cache of compiled kernels: entries that are damaged, replaced or missing, and a kernel that needs them.

What the cache holds is its owner's own, so nothing here tries to run code; a small kernel stands for all of them.
"""

import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from unittest import mock

import numba

from evomal import compiled
from tests.fuzzing import json_edits
from tests.fuzzing.oracle import Box, Function
from tests.fuzzing.values import KINDS_OF_FILE, replace_file

_ENDINGS = (".nbi", ".nbc")


def halved(x):
    """A function with one entry for whole numbers and one for others, which must not take each other's place."""
    return x // 2 if x > 1 else x * 2


class KernelCaches:
    """Uses the kernel twice: its results must be right, and the second process must be no worse off."""

    def __init__(self, corpus: Path) -> None:
        self._folder = corpus / "kernels"
        if not self._folder.exists():
            _use(self._folder)

    def draw(self, rng: random.Random) -> list[Any]:
        """Edits of some of the files."""
        edits: list[Any] = []
        for _ in range(rng.choice([1, 1, 2, 3])):
            place = (rng.choice(_ENDINGS), rng.randrange(2))
            way = rng.random()
            if way < 0.6:
                edits.append(("bytes", place, json_edits.drawn_bytes(rng)))
            elif way < 0.8:
                edits.append(("kind", place, rng.choice([kind for kind in KINDS_OF_FILE if kind != "sparse"])))
            elif way < 0.9:
                edits.append(("swap", place, None))
            else:
                edits.append(("zeros", place, None))
        return edits

    def stage(self, edits: Sequence[Any], box: Box) -> list[Any]:
        """The folder as `kernels`."""
        folder = box.here / "kernels"
        shutil.copytree(self._folder, folder)
        for way, (ending, number), edit in edits:
            paths = sorted(path for path in folder.rglob(f"*{ending}") if path.is_file() and not path.is_symlink())
            if not paths:
                continue
            path = paths[number % len(paths)]
            if way == "bytes":
                path.write_bytes(json_edits.edited_bytes(path.read_bytes(), [edit]))
            elif way == "zeros":
                path.write_bytes(bytes(path.stat().st_size))
            elif way == "swap":
                other = paths[(number + 1) % len(paths)]
                content = path.read_bytes()
                path.write_bytes(other.read_bytes())
                other.write_bytes(content)
            else:
                replace_file(path, edit, box.outside)
        return [Function(lambda: _use(folder), "a kernel is used") for _ in range(2)]


def _use(folder: Path) -> None:
    with mock.patch.object(numba.config, "CACHE_DIR", str(folder)), mock.patch.object(compiled, "_said", set()):
        kernel = compiled.kernel()(halved)
        found = [kernel(value) for value in (7, 7.0, 1, 0.5)]
    assert [(type(value), value) for value in found] == [(int, 3), (float, 3.0), (int, 2), (float, 1.0)], found
