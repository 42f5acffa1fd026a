"""A function of one candidate applied to all: stacked by `vmap`, or one after the other."""

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import torch
from torch import Tensor
from torch.func import vmap

from evomal.engine.masks import Masks

Mode = Literal["stacked", "looped"]


class Over(Protocol):
    """How a function of tensors and dictionaries of tensors becomes one with a leading dimension of candidates."""

    def __call__(self, function: Callable[..., Any], place: str) -> Callable[..., Any]: ...


def over_candidates(mode: Mode, masks: Masks) -> Over:
    """The way of the mode; what the function draws it draws alike for every candidate."""
    return _stacked(masks) if mode == "stacked" else _looped(masks)


def _stacked(masks: Masks) -> Over:
    def over(function: Callable[..., Any], place: str) -> Callable[..., Any]:
        batched = vmap(function, randomness="same")

        def applied(*arguments: Any) -> Any:
            masks.begin(place)
            return batched(*arguments)

        return applied

    return over


def _looped(masks: Masks) -> Over:
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
