"""Models as a user's function makes them: each one fresh, in training mode except for frozen parts."""

from collections.abc import Iterator

from torch import nn

from evomal.errors import InputError

Norm = nn.modules.batchnorm._NormBase


def check_independent(first: nn.Module, second: nn.Module) -> None:
    """Raise if two models that one function has made share what a training changes.

    Frozen parameters may be shared, as those of a pretrained backbone that is loaded once.
    """
    if first is second:
        raise InputError("a task's model must make a fresh model at each call but made the same one twice")
    known = {id(parameter) for parameter in first.parameters() if parameter.requires_grad}
    for name, parameter in second.named_parameters():
        if id(parameter) in known:
            raise InputError(
                f"a task's model must make a fresh model at each call but made two that share the parameter {name}: "
                "build every trained layer inside the function"
            )
    layers = set(first.modules())
    for name, layer in second.named_modules():
        if isinstance(layer, Norm) and layer in layers and layer.training and layer.track_running_stats:
            raise InputError(
                "a task's model must make a fresh model at each call but made two that share the statistics of "
                f"{name}: build it inside the function, or freeze it and put it into evaluation mode"
            )


def put_into_training_mode(model: nn.Module) -> None:
    """Call `model.train()`, but leave frozen parts in evaluation mode that the user's function has put there.

    A part is frozen if all its parameters are. Others are put into training mode, as pretrained models are usually
    returned in evaluation mode.
    """
    kept = set(_kept_in_evaluation(model, of_kept_part=False))
    model.train()
    for layer in kept:
        layer.training = False


def _kept_in_evaluation(layer: nn.Module, *, of_kept_part: bool) -> Iterator[nn.Module]:
    parameters = [*layer.parameters()]
    is_frozen = bool(parameters) and not any(parameter.requires_grad for parameter in parameters)
    is_kept = not layer.training and (of_kept_part or is_frozen)
    if is_kept:
        yield layer
    for child in layer.children():
        yield from _kept_in_evaluation(child, of_kept_part=is_kept)
