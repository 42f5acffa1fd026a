"""Random crops and flips of image batches, on the device they lie on."""

import functools
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor

from evomal.randomness import generator


@dataclass(frozen=True)
class Augmentation:
    """Pad with zeros, crop back at a random place, and mirror half of the images if they may be mirrored."""

    padding: int = 4
    flip: bool = True

    def __call__(self, images: Tensor, *, generator: torch.Generator) -> Tensor:
        """A changed copy of (samples, channels, height, width); the generator lives on the images' device."""
        samples, _, height, width = images.shape
        device = images.device
        offsets = torch.randint(2 * self.padding + 1, (2, samples, 1), generator=generator, device=device)
        rows, columns = (offsets[axis] + torch.arange(side, device=device) for axis, side in enumerate((height, width)))
        if self.flip:
            mirrored = torch.rand(samples, 1, generator=generator, device=device) < 0.5
            columns = torch.where(mirrored, columns.flip(1), columns)
        padded = F.pad(images, [self.padding] * 4)
        sample = torch.arange(samples, device=device)[:, None, None]
        # Advanced indices around the slice put the channels last.
        return padded[sample, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


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
