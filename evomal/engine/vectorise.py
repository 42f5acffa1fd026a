"""Dropout that is the same for every candidate: what a step draws depends on the seed and the step alone."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from torch.func import vmap

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


Mode = Literal["stacked", "looped"]


class Vectorise(Protocol):
    """How a function of tensors and dictionaries of tensors becomes one with a leading dimension of candidates."""

    def __call__(self, function: Callable[..., Any], place: str) -> Callable[..., Any]: ...


def vectorised(mode: Mode, masks: Masks) -> Vectorise:
    """The way of the mode; what the function draws it draws alike for every candidate."""
    return _stacked(masks) if mode == "stacked" else _looped(masks)


def _stacked(masks: Masks) -> Vectorise:
    def over(function: Callable[..., Any], place: str) -> Callable[..., Any]:
        batched = vmap(function, randomness="same")

        def applied(*arguments: Any) -> Any:
            masks.begin(place)
            return batched(*arguments)

        return applied

    return over


def _looped(masks: Masks) -> Vectorise:
    def over(function: Callable[..., Any], place: str) -> Callable[..., Any]:
        def applied(*arguments: Any) -> Any:
            results = []
            for candidate in range(_count(arguments[0])):
                masks.begin(place)
                results.append(function(*(_chosen(argument, candidate) for argument in arguments)))
            return _joined(results)

        return applied

    return over


def _count(argument: Any) -> int:
    return len(next(iter(argument.values())) if isinstance(argument, dict) else argument)


def _chosen(argument: Any, candidate: int) -> Any:
    if isinstance(argument, dict):
        return {name: tensor[candidate] for name, tensor in argument.items()}
    return argument[candidate]


def _joined(results: Sequence[Any]) -> Any:
    first = results[0]
    if isinstance(first, Tensor):
        return torch.stack(list(results))
    if isinstance(first, dict):
        return {name: torch.stack([result[name] for result in results]) for name in first}
    return tuple(_joined(part) for part in zip(*results, strict=True))
