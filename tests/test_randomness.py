"""Generators depend on seed and purpose, on nothing else."""

import random
import subprocess
import sys

import numpy as np

from evomal.randomness import generator


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


def test_global_states_stay_untouched():
    random.seed(0)
    before = random.getstate(), np.random.get_state()[1].tolist()  # noqa: NPY002
    generator(0, "x").normal(size=10)
    assert (random.getstate(), np.random.get_state()[1].tolist()) == before  # noqa: NPY002
