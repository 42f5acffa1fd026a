"""What the data of a task must hold, and have, for its metric to be measured."""

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from evomal.errors import InputError
from evomal.tasks.labels import Classes, class_name
from evomal.tasks.named_metrics import NamedFunction

if TYPE_CHECKING:  # it imports this module
    from evomal.tasks.metrics import Metric


@dataclass(frozen=True)
class Needs:
    """Checks metrics that are not made of others on one part of a task.

    Args:
        kind: The kind of task.
        outputs: The number of classes, labels or regression targets.
        classes: What classes and labels are called; None: by their numbers.
        has_weights: Whether the samples have weights.
    """

    kind: str
    outputs: int
    classes: Classes | None
    has_weights: bool

    def check(self, metric: "Metric", targets: Tensor, place: str) -> None:
        """Raise unless the metric can be measured on these targets; `place` says where they are."""
        function, count = metric.function, max(2, self.outputs) if self.kind == "classification" else self.outputs
        label = function.options.get("label") if isinstance(function, NamedFunction) else None
        if label is not None and label >= count:
            what = "classes" if self.kind == "classification" else "labels"
            raise InputError(
                f"the label of the metric {metric.name} must be less than the number of {what}, {count}, but is {label}"
            )
        if metric.needs_every_class and (missing := missing_class(targets, self.outputs, self.kind, self.classes)):
            raise InputError(f"the metric {metric.name} needs every class in {place}, but {missing}")
        if metric.takes_weights and not self.has_weights:
            raise InputError(
                f"the metric {metric.name} needs sample weights, but {place} has none: give sample_weight, or weights "
                "beside inputs and targets"
            )


def missing_class(targets: Tensor, outputs: int, kind: str, classes: Classes | None = None) -> str:
    """Which class has no sample, or which label is always or never there; empty where nothing is missing."""
    if kind == "multilabel":
        present = targets.reshape(-1, targets.shape[-1]) > 0.5
        for label in range(present.shape[1]):
            if not bool(present[:, label].any()) or bool(present[:, label].all()):
                how_often = "always" if bool(present[:, label].any()) else "never"
                return f"label {class_name(label, classes)} is {how_often} present there"
        return ""
    # Targets of positions may be ignored, which a negative number says.
    counts = torch.bincount(targets[targets >= 0], minlength=max(2, outputs))
    missing = (counts == 0).nonzero().flatten().tolist()
    return f"class {class_name(missing[0], classes)} has no sample there" if missing else ""
