"""The kernels that a search on the CPU needs, compiled by a second process if the cache lacks them."""

from typing import Any

from numba import types

from evomal import compiled_ahead
from evomal.compiled import is_missing
from evomal.forest.numba_kernels import gradients_kernel, mixed_kernel


def start(*, extended: bool, mixed: bool) -> None:
    """Start to compile the missing kernels, in single precision.

    Args:
        extended: Whether expressions may have other tokens than the paper's.
        mixed: Whether the weights of expressions are optimised.
    """
    kernels = _kernels(extended)[: 1 + mixed]
    missing = [number for number, kernel in enumerate(kernels) if is_missing(*kernel)]
    code = f"from evomal.forest import numba_ahead; numba_ahead.compile_kernels({extended}, {missing})"
    compiled_ahead.start(code, [(kernels[number][0].py_func, kernels[number][1]) for number in missing])


def compile_kernels(extended: bool, numbers: list[int]) -> None:
    """Compile some of the kernels, in the process that `start` starts."""
    chosen = [_kernels(extended)[number] for number in numbers]
    compiled_ahead.report(kernel.compile(signature) for kernel, signature in chosen)


def _kernels(extended: bool) -> list[tuple[Any, tuple[Any, ...]]]:
    """The kernels with the types that the backend calls them with."""
    real, index = types.float32, types.intp

    def array(dtype: Any, dimensions: int) -> Any:
        return types.Array(dtype, dimensions, "C")

    trees = (array(types.int32, 3), array(types.int32, 1))
    priors = (array(types.int32, 1), array(real, 1), array(real, 1)) if extended else (types.none,) * 3
    batch = (*trees, *priors, types.float64, array(real, 2), array(real, 3), array(real, 3))
    form, shares = (index, types.boolean, index), (index, index)
    descent = (index, types.float64, types.float64)
    return [
        (gradients_kernel, (*batch, *form, *descent, array(real, 2), array(real, 3), *shares)),
        (mixed_kernel, (*batch, array(real, 3), *form, array(types.float64, 3), *shares)),
    ]
