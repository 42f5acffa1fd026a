"""Models whose last layer makes probabilities, where losses take logits and make the probabilities themselves."""

import warnings
import weakref
from typing import Any

import torch
from torch import Tensor

from evomal.tasks.task import Task

_KNOWN: "weakref.WeakSet[Task]" = weakref.WeakSet()
"""Tasks whose model was checked: it makes logits, or a warning was given."""
_TOLERANCE = 1e-5
_RESHAPING = (
    "View", "UnsafeView", "ReshapeAlias", "Permute", "Transpose", "T", "Squeeze", "Unsqueeze", "Clone", "ToCopy",
)  # fmt: skip
_LAYERS = {"Softmax": "softmax", "LogSoftmax": "log-softmax", "Sigmoid": "sigmoid", "LogSigmoid": "log-sigmoid"}


def needs_no_warning(task: Task) -> bool:
    """Whether the task's model was checked already, or predicts values, which may be anything."""
    return task.kind == "regression" or task in _KNOWN


def warn_of_probabilities(outputs: Tensor, task: Task) -> None:
    """Warn, once for a task, if outputs `[rows, K]` of its fresh model are probabilities or logarithms of such.

    A model that ends in softmax is trained all the same, but slowly: the softmax of probabilities is nearly uniform.
    """
    _KNOWN.add(task)
    layer = _last_layer(outputs) or _layer_by_values(outputs.detach())
    if layer is not None:
        what = "logarithms of probabilities" if layer.startswith("log-") else "probabilities"
        warnings.warn(
            f"the outputs of the model of {task.name} look like {what}, but losses take logits and make probabilities "
            f"of them themselves: remove the final {layer} of the model",
            stacklevel=1,  # one place for all callers, so that Python shows it once
        )


def _last_layer(outputs: Tensor) -> str | None:
    """The function that made the outputs, whatever has changed their shape since."""
    node: Any = outputs.grad_fn
    while node is not None:
        name = node.name().partition("Backward")[0]
        if name not in _RESHAPING:
            return _LAYERS.get(name)
        node = node.next_functions[0][0]
    return None


def _layer_by_values(outputs: Tensor) -> str | None:
    """What rows that are distributions, or logarithms of distributions, must come from."""
    if outputs.shape[1] < 2 or not outputs.is_floating_point():
        return None
    tolerance = max(_TOLERANCE, 4 * torch.finfo(outputs.dtype).eps)
    values = outputs.double()
    if bool((values >= 0).all()) and bool(((values.sum(1) - 1).abs() <= tolerance).all()):
        return "softmax"
    if bool((values <= 0).all()) and bool((values.logsumexp(1).abs() <= tolerance).all()):
        return "log-softmax"
    return None
