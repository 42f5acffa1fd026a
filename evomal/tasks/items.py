"""Items and collated batches of users' datasets as parts: inputs, targets and weights in tensors."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from evomal.errors import InputError
from evomal.tasks.inputs import Inputs, map_tensors, tensors
from evomal.tasks.parts import Part
from evomal.text import short_repr, with_article

TARGET_NAMES = ("label", "labels", "target", "targets", "y")
"""Columns that hold the target where none is named."""


@dataclass(frozen=True)
class Columns:
    """Which columns of items that are mappings, as those of Hugging Face datasets, are the target and the inputs.

    Args:
        target: The name of the target; None: the first of `TARGET_NAMES` that there is.
        inputs: One name, whose values become one tensor, or several names, which become a dictionary; None: all columns
            but the target, as a dictionary if there are several.
    """

    target: str | None = None
    inputs: str | tuple[str, ...] | None = None

    def divided(self, item: Any, place: str) -> tuple[Any, Any, Any]:
        """Returns inputs, target and weight, which is None where there is none, of an item or batch."""
        if isinstance(item, Mapping):
            return (*self._of_mapping(item, place), None)
        if not isinstance(item, tuple | list) or len(item) not in (2, 3):
            raise InputError(
                f"{place} must be a pair of input and target, a triple with a weight, or a mapping of columns, "
                f"but is {_form(item)}"
            )
        inputs, target, weight = (*item, None)[:3]
        return inputs, target, weight

    def _of_mapping(self, item: Mapping[Any, Any], place: str) -> tuple[Any, Any]:
        names = ", ".join(map(str, item))
        target = self.target or next((name for name in TARGET_NAMES if name in item), None)
        if target is None or target not in item:
            wanted = "a target" if target is None else f"the target {target!r}"
            raise InputError(f"{place} must have {wanted} but has the columns {names}: name the target with target=…")
        chosen = self.inputs
        if chosen is None:
            others = tuple(name for name in item if name != target)
            if not others:
                raise InputError(f"{place} must have a column of inputs beside the target but has only {names}")
            chosen = others[0] if len(others) == 1 else others
        missing = [name for name in ([chosen] if isinstance(chosen, str) else chosen) if name not in item]
        if missing:
            raise InputError(f"{place} must have the column {missing[0]!r} but has the columns {names}")
        inputs = item[chosen] if isinstance(chosen, str) else {name: item[name] for name in chosen}
        return inputs, item[target]


def stacked_items(items: Sequence[Any], columns: Columns, places: Sequence[str]) -> Part:
    """Returns items as one part: a row for each."""
    divided = [columns.divided(item, place) for item, place in zip(items, places, strict=True)]
    inputs = [_tree(own[0], f"the input of {place}") for own, place in zip(divided, places, strict=True)]
    targets = [_target(own[1], place) for own, place in zip(divided, places, strict=True)]
    weights = [own[2] for own in divided]
    if any((weight is None) != (weights[0] is None) for weight in weights):
        raise InputError(f"either all or none of the items must have weights, as {places[0]} and others differ in that")
    leaves = [tensors(own) for own in inputs]
    try:
        stacked = [torch.stack(own) for own in zip(*leaves, strict=True)]
        stacked_targets = torch.stack(targets)
    except (RuntimeError, ValueError):  # several shapes, or several numbers of inputs
        _refuse_shapes(leaves, "inputs", places)
        _refuse_shapes([[target] for target in targets], "targets", places)
        raise
    found = iter(stacked)
    weighted = None if weights[0] is None else torch.stack([_weight(own, places[0]) for own in weights])
    return _in_dtypes(Part(map_tensors(lambda _: next(found), inputs[0]), stacked_targets, weighted))


def batch_part(batch: Any, columns: Columns, place: str) -> Part:
    """Returns a collated batch of the user's as a part."""
    inputs, target, weight = columns.divided(batch, place)
    tree, targets = _tree(inputs, f"the input of {place}"), _target(target, place)
    weights = None if weight is None else _weight(weight, place)
    counted = [*tensors(tree), targets, *([] if weights is None else [weights])]
    if any(own.dim() == 0 for own in counted) or len({len(own) for own in counted}) != 1 or len(targets) == 0:
        shapes = ", ".join(str(list(own.shape)) for own in counted)
        raise InputError(f"{place} must have one row for each sample in every tensor but has shapes {shapes}")
    return _in_dtypes(Part(tree, targets, weights))


def _tree(value: Any, place: str) -> Inputs:
    if isinstance(value, Mapping):
        return {str(name): _tensor(own, f"{place}, {name},") for name, own in value.items()}
    # Numbers in a tuple are one sample's features; arrays in a tuple are several inputs.
    if isinstance(value, tuple) and any(isinstance(own, Tensor | np.ndarray) for own in value):
        return tuple(_tensor(own, place) for own in value)
    return _tensor(value, place)


def _target(value: Any, place: str) -> Tensor:
    return _tensor(value, f"the target of {place}", ": give class numbers from 0, and their names as classes=…")


def _tensor(value: Any, place: str, advice: str = ": choose columns of numbers with inputs=…") -> Tensor:
    """Returns a value as a tensor of real numbers; `advice` says what to do about texts."""
    try:
        tensor = torch.as_tensor(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):
        is_text = isinstance(value[0] if isinstance(value, list | tuple) and value else value, str)
        hint = advice if is_text else ""
        raise InputError(f"{place} must hold numbers in rows of one shape but is {short_repr(value)}{hint}") from None
    if tensor.is_complex():
        raise InputError(f"{place} must hold real numbers but got {str(tensor.dtype).removeprefix('torch.')}")
    return tensor.detach()


def _weight(value: Any, place: str) -> Tensor:
    return _tensor(value, f"the weight of {place}").float()


def _in_dtypes(part: Part) -> Part:
    """Returns the part with floats in single precision and integers in 64 bits, as every part has them, but bytes.

    Bytes, as images often are, are converted where they are needed: as they are, they are copied several times faster.
    """

    def fitting(tensor: Tensor) -> Tensor:
        if tensor.is_floating_point():
            return tensor.float()
        return tensor if tensor.dtype in (torch.bool, torch.uint8) else tensor.long()

    return Part(map_tensors(fitting, part.inputs), fitting(part.targets), part.weights)


def _refuse_shapes(leaves: Sequence[Sequence[Tensor]], what: str, places: Sequence[str]) -> None:
    """Raise if items differ in shape."""
    shapes = [" and ".join(str(list(own.shape)) for own in leaf) for leaf in leaves]
    for shape, place in zip(shapes, places, strict=True):
        if shape != shapes[0]:
            raise InputError(
                f"items must have {what} of one shape but {places[0]} has {shapes[0]} and {place} has {shape}: use "
                "Task.from_loaders with a loader that pads them"
            )


def _form(item: Any) -> str:
    return with_article(type(item).__name__) + (f" of {len(item)}" if isinstance(item, tuple | list) else "")
