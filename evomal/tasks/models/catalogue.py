"""Models by name: what a command line or a setting may ask for, such as "resnet18" or "mlp:hidden=64"."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from evomal.checks import named, options_in
from evomal.tasks.models.base import BuiltInModel
from evomal.tasks.models.plain import VGG16, AlexNet, AllCNNC, LeNet5, Logistic, MultiLayerPerceptron, SqueezeNet
from evomal.tasks.models.residual import PreResNet101, PyramidNet, ResNet18, WideResNet


@dataclass(frozen=True)
class NamedModel:
    """A row of the catalogue."""

    make: type[BuiltInModel]
    purpose: str
    citation: str
    options: Mapping[str, float] = field(default_factory=dict)
    """Each option with its default, whose type a given value must have."""

    @property
    def name(self) -> str:
        return self.make.name


_ROWS = (
    NamedModel(Logistic, "one linear layer, the floor every other model must beat", "Cox 1958"),
    NamedModel(
        MultiLayerPerceptron,
        "two hidden layers, for tables and digits",
        "Rumelhart, Hinton, Williams 1986",
        {"hidden": 1000},
    ),
    NamedModel(LeNet5, "small convolutional network for digits", "LeCun et al. 1998"),
    NamedModel(AlexNet, "five convolutions, no normalisation", "Krizhevsky, Sutskever, Hinton 2012"),
    NamedModel(VGG16, "thirteen plain convolutions with batch norm", "Simonyan, Zisserman 2015"),
    NamedModel(AllCNNC, "convolutions only, with dropout", "Springenberg et al. 2015", {"dropout": 0.5}),
    NamedModel(ResNet18, "residual network, the usual choice for small images", "He et al. 2016, CVPR"),
    NamedModel(PreResNet101, "deep pre-activation residual network", "He et al. 2016, ECCV"),
    NamedModel(WideResNet, "wide residual network: many filters in few layers", "Zagoruyko, Komodakis 2016"),
    NamedModel(SqueezeNet, "few parameters: fire modules with bypasses", "Iandola et al. 2016"),
    NamedModel(PyramidNet, "residual network that widens block by block", "Han, Kim, Kim 2017"),
)

MODELS: dict[str, NamedModel] = {row.name: row for row in _ROWS}


def make_model(
    spec: str, input_shape: tuple[int, ...], outputs: int, *, generator: torch.Generator | None = None
) -> BuiltInModel:
    """The model that `spec` names, "name" or "name:option=value,option=value".

    Its weights are drawn from the generator alone, or from that of seed 0 if none is given.
    """
    given: Any = spec
    row = named("model", spec.partition(":")[0] if isinstance(given, str) else given, MODELS)
    return row.make.build(tuple(input_shape), outputs, generator=generator, **options_in(spec, row.options))
