"""What losses of a comparison are called, and how two that look alike are told apart."""

from collections.abc import Mapping, Sequence
from typing import Any

from torch import Tensor, nn

from evomal.engine.task_content import digest
from evomal.errors import InputError
from evomal.losses import Loss
from evomal.losses.catalogue import name_of
from evomal.losses.elementwise import ElementwiseLoss
from evomal.losses.files import described
from evomal.runs.canonical import checksum

_LONGEST = 40  # characters of what sets a loss apart; beyond that a number is easier to read
_MOST_NUMBERS = 4  # of a tensor
_PLAIN = (bool, int, float, str)


def module_name(module: nn.Module) -> str:
    """The name of a loss that is given as a module: its own, `learned`, or its class."""
    if isinstance(module, Loss) and (name := name_of(module)) is not None:
        return name
    return "learned" if isinstance(module, ElementwiseLoss) else type(module).__name__


def is_described(module: nn.Module) -> bool:
    """Whether a loss file could hold all that the loss is; of a module of the user's own, nothing is that certain."""
    return _description(module) is not None


def identity_of(module: nn.Module) -> str:
    """Text that two losses share only where nothing that can be seen of them differs."""
    if (description := _description(module)) is not None:
        return checksum(description)
    tensors = {**dict(module.named_parameters()), **dict(module.named_buffers())}
    seen = {
        "class": type(module).__qualname__,
        "text": repr(module),
        "attributes": {
            f"{place}.{name}": repr(value)
            for place, part in module.named_modules()
            for name, value in _attributes(part).items()
        },
        "losses": [description for part in module.modules() if (description := _description(part)) is not None],
        "tensors": digest(tensors.values(), " ".join(tensors)),
    }
    return checksum(seen)


def told_apart(names: Sequence[str], modules: Sequence[nn.Module], *, taken: Sequence[str] = ()) -> list[str]:
    """The names, with what sets losses of equal names apart, in an order that depends on nothing else.

    The first of them keeps its name; options in which another differs from it follow in brackets: `ce` and
    `ce (weight=[1, 2])`. Where none does, or they are many, a number follows: `learned` and `learned 2`.

    Args:
        names: One name per loss; some may be equal.
        modules: The losses.
        taken: Names that others have.

    Returns:
        As many names, all different, none of them taken.
    """
    grouped: dict[str, list[int]] = {}
    for place, name in enumerate(names):
        grouped.setdefault(name, []).append(place)
    found = list(names)
    for name, places in grouped.items():
        if len(places) > 1:
            for place, words in zip(places, _differing([modules[place] for place in places]), strict=True):
                found[place] = f"{name} ({words})" if words else name
    given = set(taken)
    for place, name in enumerate(found):
        number = 1
        while found[place] in given:
            number += 1
            found[place] = f"{name} {number}"
        given.add(found[place])
    return found


def _description(module: nn.Module) -> dict[str, Any] | None:
    try:
        return described(module) if isinstance(module, Loss) else None
    except InputError:  # a class that derives from evomal's, of which a file could not hold what it adds
        return None


def _differing(modules: Sequence[nn.Module]) -> list[str]:
    """For each, the options in which it differs from the first."""
    first, *_ = options = [_options(module) for module in modules]
    texts = [
        ", ".join(f"{name}={_shown(value)}" for name, value in own.items() if value != first.get(name))
        for own in options
    ]
    return [text if len(text) <= _LONGEST else "" for text in texts]


def _options(module: nn.Module) -> dict[str, Any]:
    """What a person would name to tell two modules of one class apart; of a learned loss, not its many weights."""
    found = _attributes(module)
    if not isinstance(module, Loss):
        return found
    return {
        name: found[name] for name in (*module.option_names, "weight", "ignore_index", "reduction") if name in found
    }


def _attributes(module: nn.Module) -> dict[str, Any]:
    """What a module was made with, as far as it keeps it: numbers, texts, lists of them, and its own tensors."""
    own: Mapping[str, Any] = {**vars(module), **module._buffers}
    return {
        name: value.tolist() if isinstance(value, Tensor) else value
        for name, value in own.items()
        if not name.startswith("_") and name != "training" and _is_plain(value)
    }


def _is_plain(value: Any) -> bool:
    if isinstance(value, Tensor):
        return value.dim() <= 1
    if isinstance(value, list | tuple):
        return all(isinstance(entry, _PLAIN) for entry in value)
    return value is None or isinstance(value, _PLAIN)


def _shown(value: Any) -> str:
    if isinstance(value, list | tuple):
        more = ", …" if len(value) > _MOST_NUMBERS else ""
        return f"[{', '.join(map(_shown, value[:_MOST_NUMBERS]))}{more}]"
    return f"{value:g}" if isinstance(value, float) else str(value)
