"""What all built-in models share: a representation, a head, and initial weights from an explicit generator."""

from numbers import Integral
from typing import Any, ClassVar, Literal, Self

import torch
from torch import Tensor, nn

from evomal.errors import InputError


class BuiltInModel(nn.Module):
    """`features`, whose output is the representation, then `head`, the last linear or 1×1 layer and what follows it.

    Make one with `build` (or `make_model`): the constructor alone leaves torch's own initial weights, drawn from the
    global generator.
    """

    name: ClassVar[str]
    initialisation: ClassVar[Literal["xavier", "kaiming"]] = "kaiming"
    smallest_image: ClassVar[int] = 1
    """The fewest pixels of a side that leave at least one pixel after the last pooling."""

    def __init__(self, features: nn.Module, head: nn.Module) -> None:
        super().__init__()
        self.features = features
        self.head = head

    @classmethod
    def build(
        cls, input_shape: tuple[int, ...], outputs: int, *, generator: torch.Generator | None = None, **options: Any
    ) -> Self:
        """The model on the CPU, its weights drawn from the generator alone; seed 0 if none is given."""
        shape, width = _sizes(input_shape), _sizes((outputs,))
        if not shape:
            raise InputError(f"{cls.name}: the input shape must be whole numbers of at least 1 but got {input_shape!r}")
        if not width:
            raise InputError(f"{cls.name}: the number of outputs must be whole and at least 1 but got {outputs!r}")
        # Parameters on the meta device have no numbers, so torch's own initialisation draws none.
        with torch.device("meta"):
            model = cls(shape, *width, **options)  # type: ignore[arg-type]
        model.to_empty(device="cpu")
        model.reset(torch.Generator().manual_seed(0) if generator is None else generator)
        return model

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.head(self.features(inputs))
        return outputs

    def reset(self, generator: torch.Generator) -> None:
        """Draw every weight anew and forget what batch norm has seen."""
        with torch.no_grad():
            for module in self.modules():
                if isinstance(module, (nn.Linear, nn.Conv2d)):
                    # Drawn where the generator lives: a seed gives the same weights on any device and in any precision.
                    drawn = torch.empty(module.weight.shape, dtype=torch.float32, device=generator.device)
                    if self.initialisation == "xavier":
                        nn.init.xavier_uniform_(drawn, generator=generator)
                    else:
                        nn.init.kaiming_normal_(drawn, nonlinearity="relu", generator=generator)
                    module.weight.copy_(drawn)
                    if module.bias is not None:
                        module.bias.zero_()
                elif isinstance(module, nn.BatchNorm2d):
                    module.reset_parameters()

    @classmethod
    def image(cls, input_shape: tuple[int, ...]) -> tuple[int, int, int]:
        """Channels, height and width, or an error that names the smallest image."""
        if len(input_shape) != 3:
            raise InputError(f"{cls.name} takes images (channels, height, width) but got inputs of shape {input_shape}")
        channels, height, width = input_shape
        if min(height, width) < cls.smallest_image:
            side = cls.smallest_image
            raise InputError(f"{cls.name} takes images of at least {side}×{side} pixels but got {height}×{width}")
        return channels, height, width


def _sizes(values: tuple[object, ...]) -> tuple[int, ...] | None:
    """The values as plain integers, also NumPy's; None if one is not a whole number of at least 1."""
    sizes = tuple(
        int(value)
        for value in values
        if not isinstance(value, bool) and isinstance(value, Integral) and int(value) >= 1
    )
    return sizes if len(sizes) == len(values) else None


def convolution(channels: int, filters: int, size: int = 3, *, stride: int = 1, bias: bool = False) -> nn.Conv2d:
    """A convolution that keeps the image's size at stride 1; residual networks leave the bias to batch norm."""
    return nn.Conv2d(channels, filters, size, stride=stride, padding=size // 2, bias=bias)


def normalised(channels: int, filters: int, size: int = 3, *, stride: int = 1, bias: bool = False) -> nn.Sequential:
    """Convolution, batch norm, ReLU."""
    return nn.Sequential(
        convolution(channels, filters, size, stride=stride, bias=bias), nn.BatchNorm2d(filters), nn.ReLU()
    )


class GlobalAverage(nn.Module):
    """One number per channel, whatever the image's size.

    A plain mean: the backward pass of torch's adaptive pooling is not deterministic on CUDA.
    """

    def forward(self, image: Tensor) -> Tensor:
        return image.mean((2, 3))


class PreActivationBlock(nn.Module):
    """x + branch(a) with a = ReLU(batch norm(x)), after He et al. 2016, "Identity Mappings in Deep Residual Networks".

    The shortcut is x itself, or a 1×1 convolution of a if the shape changes.
    """

    def __init__(self, channels: int, filters: int, stride: int, branch: nn.Module) -> None:
        super().__init__()
        self.activate = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU())
        self.branch = branch
        changes = stride != 1 or channels != filters
        self.shortcut = convolution(channels, filters, 1, stride=stride) if changes else None

    def forward(self, image: Tensor) -> Tensor:
        active = self.activate(image)
        kept = image if self.shortcut is None else self.shortcut(active)
        result: Tensor = self.branch(active) + kept
        return result
