"""The kernels that a second process compiles are those that a search asks for."""

import subprocess
import sys

import pytest
import torch

from evomal import compiled_ahead
from evomal.cli.options import compile_ahead
from evomal.expression import Expression
from evomal.forest import Forest, numba_ahead
from evomal.forest.numba_kernels import gradients_kernel, mixed_kernel
from evomal.settings import SearchSettings

FIRST_USE = """
import sys
from evomal.forest import numba_ahead
numba_ahead.start(extended=False, mixed=True)
assert "torch" not in sys.modules
from tests.forest.test_numba_ahead import use_kernels
from evomal.forest.numba_kernels import gradients_kernel, mixed_kernel
use_kernels(extended=False)
for kernel in (gradients_kernel, mixed_kernel):
    print(sum(kernel.stats.cache_hits.values()), sum(kernel.stats.cache_misses.values()))
"""


def use_kernels(*, extended: bool) -> None:
    forest = Forest([Expression.parse("mul(y, f)")] * 3, kind="regression", outputs=2, extended=extended)
    outputs, weights = torch.ones(8, 2), torch.ones(3, forest.width)
    forest.gradients(outputs, outputs, weights)
    forest.mixed_gradients(outputs, outputs, torch.ones(3, 8, 2), weights)


@pytest.fixture
def started(monkeypatch):
    """What would be started."""
    found: list[tuple[str, list]] = []
    monkeypatch.setattr(compiled_ahead, "start", lambda code, kernels: found.append((code, kernels)))
    return found


@pytest.mark.parametrize("extended", [False, True])
def test_a_forest_calls_the_kernels_with_the_types_that_were_compiled(monkeypatch, started, extended):
    use_kernels(extended=extended)
    monkeypatch.setattr(numba_ahead, "is_missing", lambda kernel, signature: True)
    numba_ahead.start(extended=extended, mixed=True)
    ((code, kernels),) = started
    assert f"compile_kernels({extended}, [0, 1])" in code
    for kernel, (function, signature) in zip((gradients_kernel, mixed_kernel), kernels, strict=True):
        assert function is kernel.py_func
        assert signature in kernel.overloads


def test_nothing_is_compiled_that_the_cache_holds(started):
    use_kernels(extended=False)
    numba_ahead.start(extended=False, mixed=True)
    ((_, kernels),) = started
    assert kernels == []


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, [{"extended": False, "mixed": False}]),
        ({"device": "cpu", "tuned_rung": 1}, [{"extended": False, "mixed": True}]),
        ({"space": ("extended",)}, [{"extended": True, "mixed": False}]),
        ({"device": "cuda"}, []),
        ({"executor": "ray"}, []),
    ],
)
def test_a_command_asks_for_the_kernels_that_its_settings_need(monkeypatch, changes, expected):
    asked = []
    monkeypatch.setattr(numba_ahead, "start", lambda **options: asked.append(options))
    compile_ahead(SearchSettings.preset("quick", **changes))
    assert asked == expected


@pytest.mark.long
def test_a_first_use_compiles_no_kernel_in_the_process_itself(tmp_path, monkeypatch):
    monkeypatch.setenv("NUMBA_CACHE_DIR", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", FIRST_USE], capture_output=True, text=True, timeout=300)
    assert done.stdout.split() == ["1", "0", "1", "0"], done.stderr
