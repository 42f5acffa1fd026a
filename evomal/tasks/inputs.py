"""Inputs of a model: one tensor, or a tuple or dictionary of tensors with a common first dimension, one row per sample.

This module holds all operations on them, so that nothing else depends on the form that they have.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from evomal.errors import InputError

Inputs = Tensor | tuple[Tensor, ...] | dict[str, Tensor]
"""A model takes a tensor as `model(x)`, a tuple as `model(*x)` and a dictionary as `model(**x)`."""


Form = int | tuple[str, ...] | None
"""The form of inputs: None for one tensor, the number of those in a tuple, the names of those in a dictionary."""


def form_of(inputs: Inputs) -> Form:
    """Returns the form of the inputs, without their tensors."""
    if isinstance(inputs, Tensor):
        return None
    return tuple(inputs) if isinstance(inputs, Mapping) else len(inputs)


def in_form(form: Form, values: Sequence[Tensor]) -> Inputs:
    """Returns tensors as inputs of that form."""
    if form is None:
        return values[0]
    return tuple(values) if isinstance(form, int) else dict(zip(form, values, strict=True))


def tensors(inputs: Inputs) -> list[Tensor]:
    """Returns the tensors of the inputs, in their order."""
    if isinstance(inputs, Tensor):
        return [inputs]
    return list(inputs.values() if isinstance(inputs, Mapping) else inputs)


def map_tensors(function: Callable[[Tensor], Tensor], inputs: Inputs) -> Inputs:
    """Returns inputs of the same form with the function applied to each tensor."""
    return _like(inputs, [function(tensor) for tensor in tensors(inputs)])


def count(inputs: Inputs) -> int:
    """Returns the number of samples."""
    return len(tensors(inputs)[0])


def select(inputs: Inputs, rows: Tensor) -> Inputs:
    """Returns the samples at those numbers."""
    # index_select is several times faster than indexing with a tensor.
    return map_tensors(lambda tensor: tensor.index_select(0, rows), inputs)


def first(inputs: Inputs, number: int) -> Inputs:
    """Returns the first samples."""
    return map_tensors(lambda tensor: tensor[:number], inputs)


def joined(parts: Sequence[Inputs]) -> Inputs:
    """Returns inputs of one form one after the other."""
    return _like(parts[0], [torch.cat(own) for own in zip(*map(tensors, parts), strict=True)])


def pieces(inputs: Inputs, size: int) -> Iterator[Inputs]:
    """Yields the inputs in pieces of at most `size` samples."""
    for own in zip(*(torch.split(tensor, size) for tensor in tensors(inputs)), strict=True):
        yield _like(inputs, own)


def moved(inputs: Inputs, device: torch.device | str, dtype: torch.dtype | None = None) -> Inputs:
    """Returns the inputs on another device, with floating-point tensors in that dtype; integers stay integers."""
    return map_tensors(lambda tensor: tensor.to(device, dtype if tensor.is_floating_point() else None), inputs)


def is_one_float_tensor(inputs: Inputs) -> bool:
    """Whether the inputs are one tensor of floating-point numbers."""
    return isinstance(inputs, Tensor) and inputs.is_floating_point()


def arguments(inputs: Inputs) -> tuple[tuple[Tensor, ...], dict[str, Tensor]]:
    """Returns the positional and the keyword arguments that a model is called with."""
    if isinstance(inputs, Tensor):
        return (inputs,), {}
    return ((), dict(inputs)) if isinstance(inputs, Mapping) else (tuple(inputs), {})


def called(model: Callable[..., Any], inputs: Inputs) -> Any:
    """Returns what the model gives for the inputs."""
    positional, named = arguments(inputs)
    return model(*positional, **named)


def with_channels_last(inputs: Inputs) -> Inputs:
    """Returns the inputs with images, which have four dimensions, laid out with their channels last."""
    memory_format = torch.channels_last
    return map_tensors(lambda own: own.contiguous(memory_format=memory_format) if own.dim() == 4 else own, inputs)


def image_tensor(inputs: Inputs) -> Tensor:
    """Returns the inputs as the one tensor of images that an augmentation needs, or raises."""
    if isinstance(inputs, Tensor) and inputs.dim() == 4:
        return inputs
    raise InputError(
        "an augmentation needs inputs that are one tensor of shape (samples, channels, height, width) "
        f"but one sample has shape {sample_shapes(inputs)}"
    )


def sample_shapes(inputs: Inputs) -> str:
    """Returns the shapes of one sample in words: `[3, 8, 8]`, or `{ids: [12], mask: [12]}`."""
    return _described(inputs, lambda tensor: str(list(tensor.shape[1:])))


def shapes_and_dtypes(inputs: Inputs) -> str:
    """Returns the shapes and dtypes in words: `[30, 4] torch.float32`."""
    return _described(inputs, lambda tensor: f"{list(tensor.shape)} {tensor.dtype}")


def _described(inputs: Inputs, words: Callable[[Tensor], str]) -> str:
    found = [words(tensor) for tensor in tensors(inputs)]
    if isinstance(inputs, Tensor):
        return found[0]
    if isinstance(inputs, Mapping):
        return f"{{{', '.join(f'{name}: {own}' for name, own in zip(inputs, found, strict=True))}}}"
    return f"({', '.join(found)})"


def _like(inputs: Inputs, values: Sequence[Tensor]) -> Inputs:
    """Returns the tensors in the form of the inputs."""
    return in_form(form_of(inputs), values)
