"""The contract of `torch.nn.CrossEntropyLoss`: shapes, class weights, ignored samples, reduction, dtypes."""

import contextlib
import copy
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, Self, get_args

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from evomal.checks import Kind, finite_vector, one_of, whole_number
from evomal.errors import InputError
from evomal.text import plural
from evomal.units import Units


def is_eager(tensor: Tensor) -> bool:
    """Returns False under `torch.compile`, export, tracing and `torch.func`, which need composable operations."""
    if torch.compiler.is_compiling() or torch._C._is_tracing():
        return False
    # No public function tells whether a transform is active; torch.autograd.Function uses this one.
    return not torch._C._are_functorch_transforms_active() and not tensor.is_meta


Reduction = Literal["none", "mean", "sum"]


class BatchLoss(nn.Module, ABC):
    """How `loss(output, target)` treats a batch.

    A subclass says what samples cost, with one method for each form that targets can take.
    """

    kinds: ClassVar[tuple[Kind, ...]] = get_args(Kind)
    """The kinds of task that the loss is defined for."""
    weight: Tensor | None

    def __init__(
        self,
        *,
        kind: Kind = "classification",
        weight: Tensor | Sequence[float] | None = None,
        ignore_index: int = -100,
        reduction: Reduction = "mean",
    ) -> None:
        super().__init__()
        one_of("kind", kind, self.kinds)
        one_of("reduction", reduction, get_args(Reduction))
        if kind == "regression" and weight is not None:
            raise InputError("weight must be None for a regression loss, as it is per class")
        self.kind = kind
        self.ignore_index = whole_number("ignore_index", ignore_index)
        self.reduction = reduction
        vector = None if weight is None else finite_vector("weight", weight)
        if vector is not None and not isinstance(weight, Tensor):
            vector = vector.float()  # like other buffers of a module: not every device supports double precision
        self.register_buffer("weight", vector)
        self.units: Units | None = None

    def in_units(self, units: Units | None) -> Self:
        """Returns the same loss for raw outputs and targets in these units; it standardises both.

        A loss that was learned on standardised targets has their units, so that by itself it takes raw outputs and raw
        targets. A task that standardises its targets uses the loss without units: `in_units(None)`.

        Args:
            units: Mean and scale of the raw targets; None for a loss that does not standardise.

        Returns:
            A loss that shares its weights and parameters with this one.

        Raises:
            InputError: The loss is not for regression.

        Example:
            >>> from evomal.losses import HuberLoss
            >>> loss = HuberLoss(delta=1.0).in_units(Units(mean=152.0, scale=77.0))
            >>> float(loss(torch.tensor([152.0]), torch.tensor([229.0])))  # one deviation off
            0.5
        """
        if units is not None and self.kind != "regression":
            raise InputError(f"units must be None for a {self.kind} loss: only regression targets have units")
        if units == self.units:
            return self
        twin = self._twin()
        twin.units = units
        return twin

    def _twin(self) -> Self:
        """A copy with the same tensors in registries of its own: registrations and moves affect only one of the two."""
        twin = copy.copy(self)
        twin._parameters, twin._buffers = dict(self._parameters), dict(self._buffers)
        return twin

    def forward(self, output: Tensor, target: Tensor) -> Tensor:
        """Returns the reduced loss of a batch, computed in float32 or float64, in the dtype that torch would return."""
        if self._is_usual(output, target):
            fused = self.fused(output, target)
            if fused is not None:
                return fused
        _require_tensors(output, target)
        if not output.is_floating_point():
            raise InputError(f"output must be a floating-point tensor but got {output.dtype}")
        with _without_autocast(output):
            if self.kind == "regression":
                loss = self._regression(output, target)
            elif self.kind == "multilabel":
                loss = self._multilabel(output, target)
            elif output.dim() > 0 and output.shape[_class_dim(output)] == 1:
                loss = self._binary(output, target)
            else:
                loss = self._classification(output, target)
        return loss.to(_result_dtype(output, target))

    @property
    def own_weight(self) -> Tensor | None:
        """The class weights; read as an attribute of a module they take as long as all checks of a small batch."""
        if "weight" in self._buffers:
            return self._buffers["weight"]
        return self.weight  # a parameter, or what a parametrisation makes of one

    def _is_usual(self, output: object, target: object) -> bool:
        """Whether nothing has to be converted or refused: for small batches all checks take longer than the loss."""
        if not (self.kind == "classification" and isinstance(output, Tensor) and isinstance(target, Tensor)):
            return False
        shape, weight = output.shape, self.own_weight
        return (
            len(shape) == 2
            and shape[1] > 1
            and target.shape == shape[:1]
            and target.dtype is torch.int64
            and (output.dtype is torch.float32 or output.dtype is torch.float64)
            and (weight is None or weight.shape == shape[1:])
            and not _is_autocast_enabled(output.device.type)
        )

    # What samples cost. Logits are (samples, classes). Arguments have any dtype, as converting them here would copy
    # all of them; results have `compute_dtype`.

    @abstractmethod
    def of_classes(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        """Returns (samples,) losses for class indices, each times the weight of its class."""

    @abstractmethod
    def of_probabilities(self, logits: Tensor, target: Tensor, weight: Tensor | None) -> Tensor:
        """Returns (samples,) weighted losses for class probabilities."""

    @abstractmethod
    def of_bits(self, logits: Tensor, target: Tensor) -> Tensor:
        """Returns elementwise losses for independent binary outputs; the target, of any dtype, is between 0 and 1."""

    def fused(self, logits: Tensor, target: Tensor) -> Tensor | None:
        """Returns the reduced loss for class indices if there is a faster way than `of_classes`, else None."""
        return None

    def of_values(self, output: Tensor, target: Tensor) -> Tensor:
        """Returns elementwise losses of regression; if the loss has units, of standardised outputs and targets."""
        raise InputError(f"{type(self).__name__} is for classification only")

    # From batches to samples.

    def _classification(self, output: Tensor, target: Tensor) -> Tensor:
        if output.dim() == 0:
            raise _refusal(output, target, self.weight)
        class_dim = _class_dim(output)
        sample_shape = output.shape[:class_dim] + output.shape[class_dim + 1 :]
        as_indices = target.shape == sample_shape and not target.is_floating_point()
        as_probabilities = target.shape == output.shape and target.is_floating_point()
        fitting_weight = self.weight is None or self.weight.shape == (output.shape[class_dim],)
        if not (as_indices or as_probabilities) or not fitting_weight:
            raise _refusal(output, target, self.weight)
        logits = _as_rows(output, class_dim)
        weight = None if self.weight is None else self.weight.to(compute_dtype(logits, target))
        if as_probabilities:
            if self.ignore_index >= 0:  # torch's message: no class can be left out of a distribution
                raise RuntimeError("ignore_index is not supported for floating point target")
            return self._reduce(self.of_probabilities(logits, _as_rows(target, class_dim), weight), sample_shape)
        indices = target.reshape(-1).long()
        fused = self.fused(logits, indices)
        if fused is not None:
            return fused.reshape(sample_shape) if self.reduction == "none" else fused
        return self.composed(logits, indices, weight, sample_shape)

    def composed(self, logits: Tensor, indices: Tensor, weight: Tensor | None, shape: torch.Size) -> Tensor:
        """Returns the reduced loss for class indices by `of_classes`."""
        ignored = self._ignored(indices, logits.shape[1])
        if ignored is not None:
            indices = indices.masked_fill(ignored, 0)
        losses = self.of_classes(logits, indices, weight)
        return self._reduce(losses, shape, ignored, None if weight is None else weight[indices])

    def _binary(self, output: Tensor, target: Tensor) -> Tensor:
        class_dim = _class_dim(output)
        sample_shape = output.shape[:class_dim] + output.shape[class_dim + 1 :]
        if target.shape not in (output.shape, sample_shape):
            raise InputError(
                f"for one logit of shape {tuple(output.shape)} the target must have that shape "
                f"or {tuple(sample_shape)} but got {tuple(target.shape)}"
            )
        if self.weight is not None and self.weight.shape != (2,):
            raise InputError(f"one logit is binary, so weight must have 2 entries but got {tuple(self.weight.shape)}")
        logits, bits = output.reshape(-1), target.reshape(-1)
        ignored = self._ignored(bits, 2)
        if ignored is not None:
            bits = bits.masked_fill(ignored, 0)
        if self.weight is None:
            return self._reduce(self.of_bits(logits, bits), sample_shape, ignored)
        weight = self.weight.to(compute_dtype(logits, bits))
        # As in torch, a mean over hard targets divides by their weights, one over probabilities by their number.
        if target.is_floating_point():
            share = bits.to(weight.dtype)
            as_zero, as_one = (self.of_bits(logits, torch.full_like(bits, bit, dtype=torch.int64)) for bit in (0, 1))
            losses = share * weight[1] * as_one + (1 - share) * weight[0] * as_zero
            return self._reduce(losses, sample_shape, ignored)
        sample_weight = weight[bits.long()]
        return self._reduce(self.of_bits(logits, bits) * sample_weight, sample_shape, ignored, sample_weight)

    def _multilabel(self, output: Tensor, target: Tensor) -> Tensor:
        if target.shape != output.shape or output.dim() == 0:
            raise InputError(
                f"a multilabel target must have the output's shape {tuple(output.shape)} but got {tuple(target.shape)}"
            )
        class_dim = _class_dim(output)
        labels = output.shape[class_dim]
        if self.weight is not None and self.weight.shape != (labels,):
            raise InputError(
                f"weight must have one entry for each of {plural(labels, 'label')} but got {tuple(self.weight.shape)}"
            )
        ignored = self._ignored(target, 2)
        bits = target if ignored is None else target.masked_fill(ignored, 0)
        losses = self.of_bits(output, bits)
        if self.weight is not None:
            losses = losses * self.weight.to(losses.dtype).reshape([labels] + [1] * (output.dim() - class_dim - 1))
        return self._reduce(losses, output.shape, ignored)

    def _regression(self, output: Tensor, target: Tensor) -> Tensor:
        if target.shape != output.shape:
            # Only a trailing dimension of one may differ: anything else would broadcast samples against each other.
            if tuple(output.shape) not in (
                (*target.shape, 1),
                target.shape[:-1] if target.shape[-1:] == (1,) else None,
            ):
                raise InputError(
                    f"target must have the output's shape {tuple(output.shape)} but got {tuple(target.shape)}"
                )
            target = target.reshape(output.shape)
        prediction, value = to_compute_dtype(output, target)
        if self.units is not None:
            prediction, value = self.units.standardised(prediction), self.units.standardised(value)
        return self._reduce(self.of_values(prediction, value), output.shape)

    def _reduce(
        self, losses: Tensor, shape: torch.Size, ignored: Tensor | None = None, weights: Tensor | None = None
    ) -> Tensor:
        """Reduces the losses that are not ignored; a mean divides by the sum of their weights, or by their number."""
        if ignored is not None:
            losses = losses.masked_fill(ignored, 0)
        if self.reduction == "none":
            return losses.reshape(shape)
        if self.reduction == "sum":
            return losses.sum()
        if weights is not None:
            return losses.sum() / (weights if ignored is None else weights.masked_fill(ignored, 0)).sum()
        return losses.mean() if ignored is None else losses.sum() / (~ignored).sum()

    def _ignored(self, target: Tensor, classes: int) -> Tensor | None:
        """Returns the mask of ignored samples, or None if it is known that there are none."""
        if target.dtype == torch.bool:
            return None
        if is_eager(target) and target.device.type == "cpu" and target.numel():
            low, high = (bound.item() for bound in target.aminmax())
            if not low <= self.ignore_index <= high:
                if low < 0 or high > classes - 1:
                    raise IndexError(f"Target {low if low < 0 else high} is out of bounds.")
                return None
            kept = target[target != self.ignore_index]
            if kept.numel() and (kept.min() < 0 or kept.max() > classes - 1):
                culprit = kept[(kept < 0) | (kept > classes - 1)][0].item()
                raise IndexError(f"Target {culprit} is out of bounds.")
        return target == self.ignore_index


def _require_tensors(output: object, target: object) -> None:
    """Raise as torch's losses do: a model may return a tuple, and targets may be an array."""
    if not isinstance(output, Tensor):
        raise TypeError(f"output must be a tensor but got {type(output).__name__}")
    if not isinstance(target, Tensor):
        raise TypeError(f"target must be a tensor but got {type(target).__name__}")


def compute_dtype(*tensors: Tensor) -> torch.dtype:
    """Returns float64 if any of the tensors has it, else float32: half precision is never enough inside a loss."""
    for tensor in tensors:
        if tensor.dtype is torch.float64:
            return torch.float64
    return torch.float32


def to_compute_dtype(output: Tensor, target: Tensor) -> tuple[Tensor, Tensor]:
    """Returns both tensors in the dtype in which their loss is computed."""
    dtype = compute_dtype(output, target)
    return output.to(dtype), target.to(dtype)


def _without_autocast(output: Tensor) -> contextlib.AbstractContextManager[Any]:
    device = output.device.type
    # Entering the context takes longer than checking whether it is needed.
    return torch.autocast(device, enabled=False) if _is_autocast_enabled(device) else contextlib.nullcontext()


def _is_autocast_enabled(device: str) -> bool:
    return device != "meta" and torch.is_autocast_enabled(device)  # which raises for a device without autocast


def _class_dim(output: Tensor) -> int:
    return 0 if output.dim() == 1 else 1


def _as_rows(tensor: Tensor, class_dim: int) -> Tensor:
    """(…, C, …) as (samples, C)."""
    if tensor.dim() == 2:
        return tensor
    return tensor.movedim(class_dim, -1).reshape(-1, tensor.shape[class_dim])


def _result_dtype(output: Tensor, target: Tensor) -> torch.dtype:
    dtype = torch.promote_types(output.dtype, target.dtype) if target.is_floating_point() else output.dtype
    if dtype != torch.float64 and _is_autocast_enabled(output.device.type):
        return torch.float32
    return dtype


def _refusal(output: Tensor, target: Tensor, weight: Tensor | None) -> Exception:
    """Returns the error that torch itself raises for such inputs, with the message that people know."""
    try:
        blank_output, blank_target = (torch.zeros_like(tensor, device="cpu") for tensor in (output, target))
        F.cross_entropy(blank_output, blank_target, None if weight is None else weight.to("cpu", output.dtype))
    except Exception as error:
        return error
    return InputError(
        f"for logits of shape {tuple(output.shape)} the target must be class indices, or class probabilities of that "
        f"shape, but got {target.dtype} of shape {tuple(target.shape)}"
    )
