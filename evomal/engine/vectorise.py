"""Functions applied to all candidates, with dropout that is the same for each: it depends on seed and step alone."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from torch.func import vmap

from evomal.randomness import derived_seed, reseed_torch


class Masks:
    """Seeds torch's global generators before each forward pass of a model with dropout.

    Inside a captured CUDA graph nothing can be seeded, so there only the start of a step is seeded; draws within the
    step then have a fixed order. To be used inside `isolated_torch`, which restores the generators.
    """

    def __init__(self, *, enabled: bool, captured: bool, device: torch.device, seed: int) -> None:
        self._enabled, self._captured, self._device, self._seed = enabled, captured, device, seed
        self._step = 0

    def begin_step(self, step: int) -> None:
        """Seed for a step; to be called outside of a capture."""
        self._step = step
        if self._enabled:
            self._reseed("step")

    def begin(self, place: str) -> None:
        """Seed for a forward pass: the same place of the same step draws the same numbers."""
        if self._enabled and not self._captured:
            self._reseed(place)

    def _reseed(self, place: str) -> None:
        reseed_torch(derived_seed(self._seed, "masks", "meta", self._step, place), self._device)


Mode = Literal["stacked", "looped"]


class Vectorise(Protocol):
    """Turns a function of tensors and dictionaries of tensors into one with a leading dimension of candidates."""

    def __call__(self, function: Callable[..., Any], place: str) -> Callable[..., Any]: ...


def vectorised(mode: Mode, masks: Masks) -> Vectorise:
    """Returns `vmap` or a loop over the candidates; random numbers are the same for every candidate."""
    return _stacked(masks) if mode == "stacked" else _looped(masks)


def _stacked(masks: Masks) -> Vectorise:
    def vectorise(function: Callable[..., Any], place: str) -> Callable[..., Any]:
        batched = vmap(function, randomness="same")

        def applied(*arguments: Any) -> Any:
            masks.begin(place)
            return batched(*arguments)

        return applied

    return vectorise


def _looped(masks: Masks) -> Vectorise:
    def vectorise(function: Callable[..., Any], place: str) -> Callable[..., Any]:
        def applied(*arguments: Any) -> Any:
            results = []
            for candidate in range(_count(arguments[0])):
                masks.begin(place)
                results.append(function(*(_one_of(argument, candidate) for argument in arguments)))
            return _joined(results)

        return applied

    return vectorise


def _count(argument: Any) -> int:
    return len(next(iter(argument.values())) if isinstance(argument, dict) else argument)


def _one_of(argument: Any, candidate: int) -> Any:
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
