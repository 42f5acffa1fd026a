"""One door to every export format."""

from collections.abc import Callable
from typing import Any

from evomal.errors import InputError
from evomal.losses.contract import Loss
from evomal.losses.exporting.formulas import to_latex, to_sympy
from evomal.losses.exporting.onnx_graph import to_onnx
from evomal.losses.exporting.source import to_jax, to_python

FORMATS: dict[str, Callable[[Loss], Any]] = {
    "python": to_python,
    "latex": to_latex,
    "sympy": to_sympy,
    "onnx": to_onnx,
    "jax": to_jax,
}


def export(loss: Loss, to: str = "python", **options: Any) -> Any:
    """The loss in another form.

    `python` and `jax`: the text of a file that needs only torch or JAX; `latex`: text; `sympy`: an expression;
    `onnx`: the bytes of a graph, for which `classes` gives the number of classes (10), and `probabilities=True` makes
    the targets class probabilities instead of class indices.
    """
    if to not in FORMATS:
        raise InputError(f"a loss is exported to one of {', '.join(FORMATS)} but got {to!r}")
    if not isinstance(loss, Loss):
        raise InputError(f"only evomal's own losses can be exported but got {type(loss).__name__}")
    if options and to != "onnx":
        raise InputError(f"{to} has no option {next(iter(options))!r}")
    return FORMATS[to](loss, **options)
