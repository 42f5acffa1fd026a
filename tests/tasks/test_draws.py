"""Draws of users' datasets: global generators, and generators that a dataset keeps."""

import functools
import random

import numpy as np
import torch

from evomal.randomness import GlobalStates, preserved_globals
from evomal.tasks.draws import Draws, own_generators

MODULES_OWN = np.random.default_rng(0)


class Keeping:
    def __init__(self) -> None:
        self.steps = [functools.partial(self.shifted, random.Random(1)), {"noise": np.random.RandomState(2)}]
        generator = torch.Generator()
        self.closure = lambda: torch.rand((), generator=generator)
        self.me = self  # what leads back to itself is looked at once

    @staticmethod
    def shifted(generator: random.Random) -> float:
        return generator.random()

    def __getitem__(self, index: int) -> list[float]:
        return [
            self.steps[0](),
            self.steps[1]["noise"].rand(),
            self.closure().item(),
            MODULES_OWN.random(),
            random.random(),
            np.random.rand(),  # noqa: NPY002
            torch.rand(()).item(),
        ]


def test_all_generators_that_a_dataset_leads_to_are_found():
    kinds = {type(generator) for generator in own_generators(Keeping())}
    assert kinds == {random.Random, np.random.RandomState, torch.Generator, np.random.Generator}


def test_a_seed_decides_every_draw():
    dataset = Keeping()
    draws = Draws(dataset)
    with preserved_globals():
        readings = []
        for start in (5, 6, 5):
            draws.seed(start)
            readings.append(dataset[0])
    assert readings[0] == readings[2]
    assert all(one != other for one, other in zip(readings[0], readings[1], strict=True))


def test_global_states_are_preserved_and_told_apart():
    before = GlobalStates.now()
    with preserved_globals():
        Draws().seed(3)
        assert GlobalStates.now() != before
    assert GlobalStates.now() == before
    for draw in (random.random, lambda: np.random.rand(), lambda: torch.rand(())):  # noqa: NPY002
        with preserved_globals():
            draw()
            assert GlobalStates.now() != before
