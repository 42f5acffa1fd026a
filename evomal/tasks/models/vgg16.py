"""VGG-16 with batch norm, one linear layer on its last pooling.

K. Simonyan, A. Zisserman, "Very Deep Convolutional Networks for Large-Scale Image Recognition", ICLR 2015.
"""

from torch import nn

from evomal.tasks.models.layers import GlobalAverage, normalised
from evomal.tasks.models.zoo_model import ZooModel

STAGES = ((64, 64), (128, 128), (256, 256, 256), (512, 512, 512), (512, 512, 512))


class VGG16(ZooModel):
    """Thirteen 3×3 convolutions, each stage halved by pooling; the two hidden layers of 4096 are left out.

    A 32×32 image ends as one pixel; of larger ones the average is taken, so that the parameters do not grow.
    """

    name = "vgg16"
    smallest_image = 32

    def __init__(self, input_shape: tuple[int, ...], outputs: int) -> None:
        channels, _, _ = self.image(input_shape)
        layers: list[nn.Module] = []
        for stage in STAGES:
            for filters in stage:
                layers.append(normalised(channels, filters, bias=True))
                channels = filters
            layers.append(nn.MaxPool2d(2))
        super().__init__(nn.Sequential(*layers, GlobalAverage()), nn.Linear(channels, outputs))
