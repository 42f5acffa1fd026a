"""What a task's model takes and gives, tried on two samples while the task is made."""

import contextlib
import dataclasses
import itertools
from collections.abc import Callable, Collection, Iterator, Sequence
from typing import Any

import torch
from torch import nn

from evomal.errors import InputError
from evomal.randomness import isolated_numpy, isolated_torch
from evomal.tasks.inputs import Inputs, called, first, map_tensors, select, tensors
from evomal.tasks.parts import Part
from evomal.users_code import described

_MOST_COMBINED = 6  # inputs of which all combinations are tried: 64 runs of a model on two samples


@contextlib.contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """A context with the model in evaluation mode; afterwards every layer is in its former mode."""
    modes = [(layer, layer.training) for layer in model.modules()]
    model.eval()
    try:
        yield
    finally:
        for layer, is_training in modes:
            layer.training = is_training


def with_integers_as_taken(parts: Sequence[Part], model: Callable[[], nn.Module]) -> list[Part]:
    """Return the parts with whole numbers and truth values as the model takes them: as they are, or as floats.

    An embedding needs integers, a linear layer or a convolution floats. The model is tried on two samples: with all
    inputs as they are, with all as floats, then with as few of them as floats as it takes, such as a table of counts
    beside token ids. Where it fails on all of these, nothing is converted, and trainings will say why it fails.

    Args:
        parts: The parts of a task: train, validation and test.
        model: The task's model factory.

    Raises:
        InputError: If the model takes whole numbers, but not the largest or smallest ones of a part.
    """
    samples = first(parts[0].inputs, 2)
    whole = [place for place, tensor in enumerate(tensors(samples)) if not tensor.is_floating_point()]
    if not whole or (tried := _fresh(model)) is None:
        return list(parts)
    for places in _places_to_convert(whole):
        if _outcome(tried, _with_floats_at(samples, places))[1] is None:
            found = [dataclasses.replace(part, inputs=_with_floats_at(part.inputs, places)) for part in parts]
            for name, part in zip(("train", "validation", "test"), found, strict=True):
                _check_range(part, name, tried)
            return found
    return list(parts)


def _places_to_convert(whole: Sequence[int]) -> Iterator[tuple[int, ...]]:
    """Yield which of several inputs to convert, in the order in which they are tried."""
    yield ()
    yield tuple(whole)
    # Of many inputs, not all combinations are tried.
    most = len(whole) if len(whole) <= _MOST_COMBINED else 2
    for number in range(1, most):
        yield from itertools.combinations(whole, number)


def _with_floats_at(inputs: Inputs, places: Collection[int]) -> Inputs:
    """Return the inputs with those at some places as floats."""
    numbers = itertools.count()
    return map_tensors(lambda tensor: tensor.float() if next(numbers) in places else tensor, inputs)


def outputs_of_model(model: Callable[[], nn.Module], part: Part) -> int | None:
    """Return the number of classes that a model has outputs for; None if that is not clear."""
    tried = _fresh(model)
    outputs = None if tried is None else _outcome(tried, first(part.inputs, 2))[0]
    shape: tuple[int, ...] = tuple(getattr(outputs, "shape", ()))
    positions = tuple(part.targets.shape[1:])
    if len(shape) != len(positions) + 2:
        return None
    return shape[1] if shape[2:] == positions else shape[-1] if shape[1:-1] == positions else None


def _fresh(model: Callable[[], nn.Module]) -> nn.Module | None:
    """Return a model; None if the factory fails, as the first training will report."""
    try:
        with isolated_torch(0, "trial"), isolated_numpy(0, "trial"):
            made: Any = model()
    except (Exception, SystemExit):
        return None
    return made if isinstance(made, nn.Module) else None


def _outcome(model: nn.Module, inputs: Inputs) -> tuple[Any, BaseException | None]:
    """Return the outputs of a model and None, or None and what it raises, which may be anything."""
    try:
        # Layers that several models share, such as a frozen backbone, must be in the mode that the user left them in.
        with evaluating(model), torch.no_grad(), isolated_torch(0, "trial"), isolated_numpy(0, "trial"):
            return called(model, inputs), None
    except (Exception, SystemExit) as error:
        return None, error


def _check_range(part: Part, name: str, model: nn.Module) -> None:
    """Raise unless the model takes the samples with the smallest and largest whole numbers, as an embedding may not."""
    for tensor in tensors(part.inputs):
        if tensor.dtype != torch.int64:
            continue
        places = torch.stack((tensor.flatten().argmin(), tensor.flatten().argmax()))
        _, error = _outcome(model, select(part.inputs, places // tensor[0].numel()))
        if error is not None:
            least, most = tensor.flatten()[places].tolist()
            raise InputError(
                f"the model cannot take all inputs of the {name} split, whose whole numbers range from {least} to "
                f"{most}, as an embedding of at most {most} numbers cannot: {described(error)}"
            ) from error
