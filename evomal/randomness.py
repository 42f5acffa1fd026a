"""Random generators derived from a seed and a purpose, so that the draws of one purpose do not affect another."""

import contextlib
import hashlib
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from evomal.checks import seed_number


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A generator that depends only on the seed and the purpose.

    Two purposes of one seed give independent streams. The same purpose gives the same stream on every machine, in every
    process, and in whatever order generators are made.
    """
    return np.random.default_rng(_entropy(seed, purpose))


def torch_generator(seed: int, *purpose: str | int, device: torch.device | str = "cpu") -> torch.Generator:
    """The same for torch; the device is the one that draws."""
    return torch.Generator(device).manual_seed(derived_seed(seed, *purpose))


def derived_seed(seed: int, *purpose: str | int) -> int:
    """A seed for torch's own generators, of 63 bits."""
    return _entropy(seed, purpose) % 2**63


@contextlib.contextmanager
def isolated_torch(seed: int, *purpose: str | int, device: torch.device | str = "cpu") -> Iterator[None]:
    """A context for code that uses torch's global generators, as layers do: seeded, and restored afterwards."""
    with torch.random.fork_rng(devices=_gpus(torch.device(device))):
        reseed_torch(derived_seed(seed, *purpose), torch.device(device))
        yield


@contextlib.contextmanager
def isolated_numpy(seed: int, *purpose: str | int) -> Iterator[None]:
    """A context for code that uses the global generators of numpy and `random`: seeded, and restored afterwards."""
    states = np.random.get_state(), random.getstate()  # noqa: NPY002
    try:
        _reseed_numpy(derived_seed(seed, *purpose))
        yield
    finally:
        np.random.set_state(states[0])  # noqa: NPY002
        random.setstate(states[1])


@dataclass(frozen=True)
class GlobalStates:
    """The states of the global generators of torch on the CPU, of numpy and of `random`."""

    of_torch: torch.Tensor
    of_numpy: Any
    of_random: Any

    @classmethod
    def now(cls) -> "GlobalStates":
        """The states that the generators are in."""
        return cls(torch.get_rng_state(), np.random.get_state(), random.getstate())  # noqa: NPY002

    def restore(self) -> None:
        """Put the generators into these states."""
        torch.set_rng_state(self.of_torch)
        np.random.set_state(self.of_numpy)  # noqa: NPY002
        random.setstate(self.of_random)

    def contents(self) -> tuple[Any, Any, Any]:
        """The three states in a form that can be compared."""
        _, numbers, *others = self.of_numpy
        return self.of_torch.numpy().tobytes(), (numbers.tobytes(), *others), self.of_random

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GlobalStates) and self.contents() == other.contents()

    def __hash__(self) -> int:
        return hash(self.contents())


@contextlib.contextmanager
def preserved_globals() -> Iterator[None]:
    """A context after which the global generators of torch on the CPU, numpy and `random` are as they were before."""
    states = GlobalStates.now()
    try:
        yield
    finally:
        states.restore()


def reseed_globals(seed: int) -> None:
    """Seed the global generators of torch on the CPU, numpy and `random`: use it in `preserved_globals`."""
    torch.default_generator.manual_seed(seed)
    _reseed_numpy(seed)


def reseed_torch(seed: int, device: torch.device) -> None:
    """Seed torch's global generators of the CPU and the device, without restoring them: use it in `isolated_torch`."""
    # One generator at a time: `torch.manual_seed` would also reseed the other GPUs.
    torch.default_generator.manual_seed(seed)
    for gpu in _gpus(device):
        torch.cuda.default_generators[gpu].manual_seed(seed)


def torch_states(device: torch.device) -> list[torch.Tensor]:
    """The states of torch's global generators of the CPU and the device."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in _gpus(device))]


def restore_torch(states: Sequence[torch.Tensor], device: torch.device) -> None:
    """Put torch's global generators into these states: use it in `isolated_torch`."""
    torch.set_rng_state(states[0])
    for gpu, state in zip(_gpus(device), states[1:], strict=True):
        torch.cuda.set_rng_state(state, gpu)


def _reseed_numpy(seed: int) -> None:
    np.random.seed(seed % 2**32)  # noqa: NPY002
    random.seed(seed)


def _gpus(device: torch.device) -> list[int]:
    if device.type != "cuda":
        return []
    index: int | None = device.index  # torch's stubs do not know that it may be None
    return [torch.cuda.current_device() if index is None else index]


def _entropy(seed: int, purpose: tuple[str | int, ...]) -> int:
    # repr keeps ("a", "b") apart from ("ab",) and 1 apart from "1"; Python's own hash differs between processes.
    digest = hashlib.sha256(repr((seed_number(seed), *purpose)).encode()).digest()
    return int.from_bytes(digest[:16], "big")
