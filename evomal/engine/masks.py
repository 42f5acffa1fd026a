"""Dropout that is the same for every candidate: what a step draws depends on the seed and the step alone."""

import torch

from evomal.randomness import derived_seed, reseed_torch


class Masks:
    """Seeds torch's global generators at the places where a model draws.

    Inside a captured CUDA graph nothing can be seeded, so there only the start of a step is; what follows within the
    step is then in a fixed order. Used inside `isolated_torch`, which undoes it all.
    """

    def __init__(self, *, drawn: bool, captured: bool, device: torch.device, seed: int, purpose: str) -> None:
        self._drawn, self._captured = drawn, captured
        self._device, self._seed, self._purpose = device, seed, purpose
        self._step = 0

    def begin_step(self, step: int) -> None:
        """Called outside of a capture, before each step."""
        self._step = step
        if self._drawn:
            self._reseed("step")

    def begin(self, place: str) -> None:
        """Called before each forward pass: the same place of the same step draws the same."""
        if self._drawn and not self._captured:
            self._reseed(place)

    def _reseed(self, place: str) -> None:
        reseed_torch(derived_seed(self._seed, "masks", self._purpose, self._step, place), self._device)
