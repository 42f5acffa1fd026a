"""What to say of a name that does not exist."""

import difflib
from collections.abc import Iterable

from evomal.errors import InputError


def unknown_name(what: str, name: str, known: Iterable[str]) -> InputError:
    """The error for a name that is not among the known ones: the nearest of them, or all."""
    names = list(known)
    near = difflib.get_close_matches(name.lower(), names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known names are {', '.join(names)}"
    return InputError(f"there is no {what} named {name[:60]!r}: {hint}")
