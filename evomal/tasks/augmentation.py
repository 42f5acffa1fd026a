"""Random crops and flips of image batches, on the device they lie on."""

from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor


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
