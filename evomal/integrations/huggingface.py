"""Losses for the Hugging Face Transformers Trainer."""

import copy
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from evomal.errors import InputError
from evomal.extras import optional_library
from evomal.losses.contract import compute_dtype
from evomal.losses.loss import Loss
from evomal.text import with_article

IGNORED = -100
"""The label of positions that Trainer does not count."""


def compute_loss_func(loss: Loss, *, shift: bool | None = None) -> Callable[..., Tensor]:
    """Returns a loss as the `compute_loss_func` of a `transformers.Trainer`.

    With a `compute_loss_func`, Trainer does not divide the loss: it expects the sum of the losses divided by
    `num_items_in_batch`, the number of labels in all batches that are accumulated before a step. A mean over each
    batch would make losses and gradients as many times too large as batches are accumulated. The returned function
    does what Trainer expects, so that accumulating four batches of 8 equals one batch of 32. In evaluation, and where
    Trainer does not count, it returns the mean over the batch.

    Positions with the label -100 do not count. Class weights multiply the losses; the sum is divided by the number of
    labels, and not, as in `torch.nn.CrossEntropyLoss`, by the sum of their weights, which Trainer does not know.

    Args:
        loss: The loss, with the reduction `mean`. It moves to the device of the logits.
        shift: Whether position t predicts the label at t + 1, as in causal language models. By default this is so if
            the model returns one of Transformers' outputs of causal language models.

    Returns:
        A function of outputs, labels and `num_items_in_batch`. The outputs hold `logits` of shape `(N, C)`,
        `(N, T, C)` with the classes last, or `(N, C, H, W)`; the labels are those that the loss takes.

    Raises:
        InputError: The loss is not one of evomal's, or its reduction or `ignore_index` is not Trainer's.

    Example:
        >>> from evomal.losses import FocalLoss
        >>> compute = compute_loss_func(FocalLoss(gamma=2.0))
        >>> # Trainer(model, arguments, train_dataset=data, compute_loss_func=compute)
        >>> outputs, labels = {"logits": torch.zeros(8, 2)}, torch.zeros(8, dtype=torch.long)
        >>> whole, quarter = compute(outputs, labels), compute(outputs, labels, num_items_in_batch=32)
        >>> float(whole / quarter)
        4.0
    """
    if not isinstance(loss, Loss):
        raise InputError(f"loss must be one of evomal's losses but got {type(loss).__name__}")
    if loss.reduction != "mean":
        raise InputError(f"the reduction of a loss for Trainer must be 'mean' but got {loss.reduction!r}")
    if loss.ignore_index != IGNORED:
        raise InputError(f"ignore_index must be {IGNORED}, by which Trainer counts, but got {loss.ignore_index}")

    def compute(outputs: Any, labels: Tensor | None, num_items_in_batch: Tensor | int | None = None) -> Tensor:
        if labels is None:
            raise InputError("the batch must have labels to compute a loss but has none")
        logits = _logits(outputs)
        labels = labels.to(logits.device)
        if _is_shifted(outputs, logits, shift):
            if labels.dim() < 2 or (logits.dim() != 3 and loss.kind != "regression"):
                raise InputError(f"logits must have shape (N, T, C) with shift=True but got {tuple(logits.shape)}")
            logits, labels = logits[:, :-1], labels[:, 1:]
        if logits.dim() == 3 and loss.kind != "regression":
            logits, labels = logits.flatten(0, 1), labels.flatten(0, 1)
        # Made at every call, so that it has the state of the loss, such as the device.
        summed = copy.copy(loss.to(logits.device))
        # As Transformers' own losses: the sum over thousands of tokens would have three digits in bfloat16.
        logits = logits.to(compute_dtype(logits))
        if loss.kind == "regression":  # whose losses take -100 for a value, as torch's do
            summed.reduction, ignored = "none", labels == IGNORED
            losses: Tensor = summed(logits, labels.masked_fill(ignored, 0))
            total = losses.masked_fill(ignored.reshape(losses.shape), 0).sum()
        else:
            summed.reduction = "sum"
            total = summed(logits, labels)
        items = (labels != IGNORED).sum() if num_items_in_batch is None else torch.as_tensor(num_items_in_batch)
        if loss.kind == "classification" and labels.is_floating_point() and labels.shape == logits.shape:
            items = items / logits.shape[1]  # every probability of a class was counted
        return total / items.to(total.device).clamp(min=1)

    return compute


def progress_callback(loss: Loss) -> Any:
    """Returns a `transformers.TrainerCallback` that tells a loss with the terminal `t` how far the training is.

    Args:
        loss: The loss that was given to `compute_loss_func`.

    Returns:
        The callback; it does nothing for a loss without `t`.

    Raises:
        InputError: Transformers is not installed.

    Example:
        >>> callbacks = [progress_callback(loss)]  # doctest: +SKIP
    """
    transformers = optional_library("transformers", "progress_callback", "transformers")

    class Progress(transformers.TrainerCallback):  # type: ignore[misc,name-defined]
        def on_step_begin(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            if getattr(loss, "is_moving", False):
                loss.progress = min(1.0, state.global_step / state.max_steps)

    return Progress()


def _logits(outputs: Any) -> Tensor:
    if isinstance(outputs, Tensor):
        return outputs
    if isinstance(outputs, Mapping):
        if "logits" not in outputs:
            raise InputError(f"the outputs of the model must hold logits but got {', '.join(map(str, outputs))}")
        found = outputs["logits"]
    else:
        found = outputs[0]
    if not isinstance(found, Tensor):
        raise InputError(f"the logits must be a tensor but got {type(found).__name__}")
    return found


def _is_shifted(outputs: Any, logits: Tensor, shift: bool | None) -> bool:
    if shift is not None or logits.dim() != 3:
        return bool(shift)
    if isinstance(outputs, Tensor) or type(outputs) in (dict, tuple, list):
        raise InputError(
            f"the model returns {with_article(type(outputs).__name__)}, which does not tell whether position t "
            "predicts the label at t + 1: give shift=True for causal language models, else shift=False"
        )
    return "CausalLM" in type(outputs).__name__
