"""The built-in tasks as a table, which needs no torch: their models, recipes and normalisation."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

_DEFAULTS: dict[str, Any] = {}
# In one district hundreds of people live in each household, a hundred deviations from the mean: with lr 0.01 most
# trainings diverge.
_TABLE_WITH_EXTREMES = {"lr": 0.001}
_PLAIN_SGD = {"momentum": 0.0, "nesterov": False, "weight_decay": 0.0}  # MNIST in the public settings
_LONG = {"steps": 150_000, "milestones": (100_000, 135_000)}


@dataclass(frozen=True)
class BuiltIn:
    """A row of the table of tasks."""

    name: str
    models: tuple[str, ...]
    """The paper's models; "paper" means the first."""
    recipe: Mapping[str, Any]
    """The arguments of its `Recipe`."""
    mean: tuple[float, ...] = ()
    deviation: tuple[float, ...] = ()
    padding: int = 0
    """The padding of training images, which are then cropped at random; 0: they are taken as they are."""
    flip: bool = False
    """Whether half of the training images are mirrored."""
    small: str = ""
    """A small model that is the default; empty if the first of the paper's is."""

    @property
    def default(self) -> str:
        """The model that is used if none is named."""
        return self.small or self.models[0]


_SMALL = "mlp:hidden=64"
_CIFAR_MODELS = ("allcnnc", "alexnet", "vgg16", "resnet18", "preresnet101", "wrn28-10", "squeezenet")
_ROWS = (
    BuiltIn("diabetes", ("mlp",), _DEFAULTS, small=_SMALL),
    BuiltIn("boston", ("mlp",), _DEFAULTS, small=_SMALL),
    BuiltIn("california", ("mlp",), _TABLE_WITH_EXTREMES, small=_SMALL),
    BuiltIn("mnist", ("lenet5", "mlp", "logistic"), _PLAIN_SGD, (0.1307,), (0.3081,), small=_SMALL),
    BuiltIn("cifar10", _CIFAR_MODELS, _LONG, (0.4914, 0.4822, 0.4465), (0.2470, 0.2435, 0.2616), 4, True),
    BuiltIn(
        "cifar100",
        ("wrn28-10", "pyramidnet", *_CIFAR_MODELS[:5], "squeezenet"),
        _LONG,
        (0.5071, 0.4867, 0.4408),
        (0.2675, 0.2565, 0.2761),
        4,
        True,
    ),
    # Crops only: a mirrored digit is not a digit.
    BuiltIn("svhn", ("wrn28-10",), _LONG, (0.4380, 0.4440, 0.4730), (0.1751, 0.1771, 0.1744), 4),
)

TASKS: dict[str, BuiltIn] = {row.name: row for row in _ROWS}
