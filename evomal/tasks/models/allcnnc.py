"""All-CNN-C with batch norm: strided convolutions in place of pooling.

J. T. Springenberg, A. Dosovitskiy, T. Brox, M. Riedmiller, "Striving for Simplicity: The All Convolutional Net", ICLR
workshop 2015.
"""

from torch import nn

from evomal.errors import InputError
from evomal.tasks.models.layers import GlobalAverage, convolution, normalised
from evomal.tasks.models.zoo_model import ZooModel


class AllCNNC(ZooModel):
    """Nine convolutions, batch norm after each.

    The last one has no ReLU, so that logits keep their sign, and is averaged over the whole image. Dropout draws from
    torch's global generator, as `nn.Dropout` does.
    """

    name = "allcnnc"

    def __init__(self, input_shape: tuple[int, ...], outputs: int, *, dropout: float = 0.5) -> None:
        if not 0 <= dropout < 1:
            raise InputError(f"allcnnc: dropout must be at least 0 and less than 1 but got {dropout}")
        channels, _, _ = self.image(input_shape)
        features = nn.Sequential(
            normalised(channels, 96, bias=True),
            normalised(96, 96, bias=True),
            normalised(96, 96, stride=2, bias=True),
            nn.Dropout(dropout),
            normalised(96, 192, bias=True),
            normalised(192, 192, bias=True),
            normalised(192, 192, stride=2, bias=True),
            nn.Dropout(dropout),
            normalised(192, 192, bias=True),
            normalised(192, 192, 1, bias=True),
        )
        head = nn.Sequential(convolution(192, outputs, 1, bias=True), nn.BatchNorm2d(outputs), GlobalAverage())
        super().__init__(features, head)
