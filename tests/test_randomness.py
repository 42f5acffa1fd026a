"""Generators depend on seed and purpose, on nothing else."""

import random
import subprocess
import sys

import numpy as np
import pytest
import torch

from evomal.errors import InputError
from evomal.randomness import generator, isolated_torch, torch_generator


def draw(*purpose, seed=0):
    return generator(seed, *purpose).integers(2**62)


def test_same_purpose_same_stream_in_another_process():
    code = "from evomal.randomness import generator; print(generator(3, 'batches', 7).integers(2**62))"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert int(printed) == draw("batches", 7, seed=3)


def test_purposes_are_kept_apart():
    purposes = [("a", "b"), ("ab",), ("a", 1), ("a", "1"), ("a", 11), ("a", 1, 1), ()]
    assert len({draw(*purpose) for purpose in purposes}) == len(purposes)
    assert draw("a", seed=1) != draw("a", seed=2)


@pytest.mark.parametrize("seed", [0.5, 1.0, "1", None, True])
def test_a_seed_is_whole(seed):
    with pytest.raises(InputError, match=f"^seed must be a whole number but got {seed!r}$"):
        generator(seed, "a")
    assert draw("a", seed=np.int64(3)) == draw("a", seed=3)


@pytest.mark.parametrize(("seed", "rule"), [(-1, "at least 0"), (2**63, f"at most {2**63 - 1}")])
def test_a_seed_can_be_recorded(seed, rule):
    with pytest.raises(InputError, match=f"^seed must be {rule} but got {seed}$"):
        generator(seed, "a")
    draw("a", seed=2**63 - 1)


def test_torch_generators_follow_the_same_rule():
    draws = [torch.rand((), generator=torch_generator(0, *purpose)) for purpose in (("a",), ("a",), ("b",))]
    assert draws[0] == draws[1] != draws[2]


def test_isolated_code_may_use_torch_s_global_generator():
    before = torch.get_rng_state()
    drawn = []
    for purpose in ("a", "a", "b"):
        with isolated_torch(0, purpose):
            drawn.append(torch.rand(()))
    assert drawn[0] == drawn[1] != drawn[2]
    assert torch.equal(before, torch.get_rng_state())


def test_isolated_code_does_not_seed_every_device(monkeypatch):
    def everywhere(_):
        raise AssertionError("torch.manual_seed reaches devices that are not restored")

    monkeypatch.setattr(torch, "manual_seed", everywhere)
    with isolated_torch(0, "a"):
        torch.rand(())


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
@pytest.mark.parametrize("device", ["cpu", "cuda", "cuda:0"])
def test_isolated_code_leaves_the_gpu_as_it_was(device):
    torch.rand(1, device="cuda")
    before, drawn = torch.cuda.get_rng_state(), []
    for _ in range(2):
        with isolated_torch(0, "a", device=device):
            drawn.append(torch.rand((), device=device).item())
    assert drawn[0] == drawn[1]
    assert torch.equal(before, torch.cuda.get_rng_state())


def test_global_states_stay_untouched():
    random.seed(0)
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    generator(0, "x").normal(size=10)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002
