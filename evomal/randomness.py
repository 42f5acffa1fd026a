"""Random generators derived from a seed and a purpose, so that the draws of one purpose do not affect another."""

import contextlib
import hashlib
import random
from collections.abc import Iterator, Sequence

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
    """The same for torch, on the device that draws."""
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
    start = derived_seed(seed, *purpose)
    try:
        np.random.seed(start % 2**32)  # noqa: NPY002
        random.seed(start)
        yield
    finally:
        np.random.set_state(states[0])  # noqa: NPY002
        random.setstate(states[1])


def reseed_torch(start: int, device: torch.device) -> None:
    """Seed torch's global generators of the CPU and the device, without restoring them: use it in `isolated_torch`."""
    # One generator at a time: `torch.manual_seed` would also reseed GPUs that are not meant.
    torch.default_generator.manual_seed(start)
    for gpu in _gpus(device):
        torch.cuda.default_generators[gpu].manual_seed(start)


def torch_states(device: torch.device) -> list[torch.Tensor]:
    """The states of torch's global generators of the CPU and the device."""
    return [torch.get_rng_state(), *(torch.cuda.get_rng_state(gpu) for gpu in _gpus(device))]


def restore_torch(states: Sequence[torch.Tensor], device: torch.device) -> None:
    """Put torch's global generators into these states: use it in `isolated_torch`."""
    torch.set_rng_state(states[0])
    for gpu, state in zip(_gpus(device), states[1:], strict=True):
        torch.cuda.set_rng_state(state, gpu)


def _gpus(device: torch.device) -> list[int]:
    if device.type != "cuda":
        return []
    index: int | None = device.index  # torch's stubs do not know that a device may leave it open
    return [torch.cuda.current_device() if index is None else index]


def _entropy(seed: int, purpose: tuple[str | int, ...]) -> int:
    # repr keeps ("a", "b") apart from ("ab",) and 1 apart from "1"; Python's own hash differs between processes.
    digest = hashlib.sha256(repr((seed_number(seed), *purpose)).encode()).digest()
    return int.from_bytes(digest[:16], "big")
