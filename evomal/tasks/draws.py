"""Random draws in users' datasets, seeded item by item: neither the order of items nor worker processes change them."""

import functools
import random
import types
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evomal.randomness import reseed_globals

_MOST_OBJECTS = 10_000  # that are looked through for generators
_MOST_ELEMENTS = 1_000  # longer lists are data, not settings
_READING = ("__getitem__", "__call__", "__iter__", "forward")  # methods that may draw from a generator of their module
_MASK = 2**63 - 1

Generator = np.random.Generator | np.random.RandomState | random.Random | torch.Generator


class Draws:
    """Seeds everything that a dataset may draw from: the global generators, and generators of its own.

    Generators of its own are those that its attributes lead to, such as the one that a transform keeps.
    """

    def __init__(self, *objects: Any) -> None:
        self._generators = own_generators(*objects)

    def seed(self, seed: int) -> None:
        """Seed all generators from one number."""
        reseed_globals(seed)
        for number, generator in enumerate(self._generators, start=1):
            _reseed(generator, (seed + number) & _MASK)

    def states(self) -> list[Any]:
        """Returns the states of the generators of its own, for `restore`."""
        return [_state(generator) for generator in self._generators]

    def restore(self, states: Sequence[Any]) -> None:
        """Put the generators of its own into these states."""
        for generator, state in zip(self._generators, states, strict=True):
            _set_state(generator, state)


def own_generators(*objects: Any) -> list[Generator]:
    """Returns the random generators that attributes, elements and closures of the objects lead to."""
    found: list[Generator] = []
    seen: dict[int, Any] = {}  # keeps the objects, so that no id is used again
    waiting = list(reversed(objects))
    while waiting and len(seen) < _MOST_OBJECTS:
        one = waiting.pop()
        if id(one) in seen or isinstance(
            one, str | bytes | int | float | np.ndarray | Tensor | type | types.ModuleType
        ):
            continue
        seen[id(one)] = one
        if isinstance(one, Generator):
            found.append(one)
        else:
            waiting.extend(reversed(_inside(one)))
    return found


def _inside(one: Any) -> list[Any]:
    if isinstance(one, Mapping | Sequence) and len(one) > _MOST_ELEMENTS:
        return []
    if isinstance(one, dict):
        return list(one.values())
    if isinstance(one, list | tuple):
        return list(one)
    if isinstance(one, functools.partial):
        return [one.func, *one.args, *one.keywords.values()]
    if isinstance(one, types.MethodType):
        return [one.__self__]
    if isinstance(one, types.FunctionType):
        cells = [cell.cell_contents for cell in one.__closure__ or () if _is_filled(cell)]
        names = [one.__globals__[name] for name in one.__code__.co_names if name in one.__globals__]
        return [*cells, *names, *(one.__defaults__ or ()), *(one.__kwdefaults__ or {}).values()]
    functions = [getattr(type(one), name, None) for name in _READING]
    return [*getattr(one, "__dict__", {}).values(), *functions]


def _is_filled(cell: Any) -> bool:
    try:
        cell.cell_contents  # noqa: B018
    except ValueError:
        return False
    return True


def _reseed(generator: Generator, seed: int) -> None:
    if isinstance(generator, torch.Generator):
        generator.manual_seed(seed)
    elif isinstance(generator, np.random.Generator):
        bits = generator.bit_generator
        bits.state = type(bits)(seed).state
    else:
        generator.seed(seed % 2**32)


def _state(generator: Generator) -> Any:
    if isinstance(generator, np.random.Generator):
        return generator.bit_generator.state
    return generator.getstate() if isinstance(generator, random.Random) else generator.get_state()


def _set_state(generator: Generator, state: Any) -> None:
    if isinstance(generator, np.random.Generator):
        generator.bit_generator.state = state
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    else:
        generator.set_state(state)
