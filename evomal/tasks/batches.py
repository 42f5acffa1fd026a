"""Mini-batches as row numbers: no loader, no copies, and step i is the same whoever asks and in whatever order."""

import functools

import torch
from torch import Tensor

from evomal.randomness import generator


class Batches:
    """Batches of `size` rows without replacement, epoch after epoch, drawn from the seed and the purpose alone.

    A batch may reach over the end of an epoch into the next, so that every batch is full and every row is used equally
    often.
    """

    def __init__(self, rows: int, size: int, *, seed: int, purpose: str, device: torch.device | str = "cpu") -> None:
        self.rows, self.size = rows, min(size, rows)
        self.seed, self.purpose, self.device = seed, purpose, device
        self._epoch = functools.lru_cache(maxsize=2)(self._permutation)

    def __getitem__(self, step: int) -> Tensor:
        """The rows of that step's batch."""
        epoch, start = divmod(step * self.size, self.rows)
        rows = self._epoch(epoch)[start : start + self.size]
        missing = self.size - len(rows)
        return torch.cat((rows, self._epoch(epoch + 1)[:missing])) if missing else rows

    def _permutation(self, epoch: int) -> Tensor:
        order = generator(self.seed, "batches", self.purpose, epoch).permutation(self.rows)
        return torch.from_numpy(order).to(self.device)
