"""Random generators derived from a seed, so that no draw depends on another purpose's draws."""

import hashlib

import numpy as np


def generator(seed: int, *purpose: str | int) -> np.random.Generator:
    """A generator that depends on the seed and on the purpose alone.

    Two purposes of one seed are independent streams; the same purpose gives the same stream on every machine,
    in every process and in whatever order the generators are made.
    """
    return np.random.default_rng(_entropy(seed, purpose))


def _entropy(seed: int, purpose: tuple[str | int, ...]) -> int:
    # repr keeps ("a", "b") apart from ("ab",) and 1 apart from "1"; Python's own hash differs between processes.
    digest = hashlib.sha256(repr((int(seed), *purpose)).encode()).digest()
    return int.from_bytes(digest[:16], "big")
