"""The units of regression targets: the mean and the scale by which they are standardised."""

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
from torch import Tensor

from evomal.errors import InputError
from evomal.text import short_repr

Values = TypeVar("Values", Tensor, npt.NDArray[Any])


@dataclass(frozen=True)
class Units:
    """Mean and scale of raw targets: one number each, or one per output.

    A task that standardises its targets has units, and a loss learned on it keeps them.

    Args:
        mean: What is subtracted from raw values.
        scale: What the difference is divided by; more than 0.

    Raises:
        InputError: A number is not finite, a scale is not positive, or the numbers of means and scales differ.

    Example:
        >>> units = Units(mean=152.0, scale=77.0)
        >>> units.standardised(np.array([152.0, 229.0])).tolist()
        [0.0, 1.0]
        >>> units.raw(np.array([0.0, 1.0])).tolist()
        [152.0, 229.0]
    """

    mean: float | tuple[float, ...] = 0.0
    scale: float | tuple[float, ...] = 1.0

    def __post_init__(self) -> None:
        means, scales = _numbers("mean", self.mean), _numbers("scale", self.scale)
        for value in scales:
            if value <= 0:
                raise InputError(f"scale must be more than 0 but got {value:g}")
        outputs = max(len(means), len(scales))
        if len(means) not in (1, outputs) or len(scales) not in (1, outputs):
            raise InputError(f"scale must have as many numbers as the mean, {len(means)}, but got {len(scales)}")
        for name, values in (("mean", means), ("scale", scales)):
            repeated = values * outputs if len(values) < outputs else values
            object.__setattr__(self, name, repeated[0] if outputs == 1 else repeated)

    @property
    def outputs(self) -> int | None:
        """The number of outputs with their own units; None if one mean and scale are used for all."""
        return len(self.mean) if isinstance(self.mean, tuple) else None

    def standardised(self, values: Values) -> Values:
        """Returns (values - mean) / scale; several outputs are the last dimension."""
        mean, scale = self._like(values)
        result: Values = (values - mean) / scale
        return result

    def raw(self, values: Values) -> Values:
        """Returns values · scale + mean, the inverse of `standardised`."""
        mean, scale = self._like(values)
        result: Values = values * scale + mean
        return result

    def __str__(self) -> str:
        return f"mean {_written(self.mean)}, scale {_written(self.scale)}"

    def _like(self, values: Any) -> tuple[Any, Any]:
        if self.outputs is None:
            return self.mean, self.scale
        if tuple(values.shape[-1:]) != (self.outputs,):
            raise InputError(
                f"the last dimension of values must be {self.outputs}, one for each output of the units, but got shape "
                f"{tuple(values.shape)}"
            )
        if isinstance(values, Tensor):
            return values.new_tensor(self.mean), values.new_tensor(self.scale)
        dtype = values.dtype if values.dtype.kind == "f" else np.float64
        return np.asarray(self.mean, dtype), np.asarray(self.scale, dtype)


def _numbers(name: str, values: Any) -> tuple[float, ...]:
    found = tuple(values) if isinstance(values, Sequence) and not isinstance(values, str) else (values,)
    for value in found or (values,):
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not abs(value) <= sys.float_info.max:  # also refuses NaN
            raise InputError(f"{name} must be a finite number, or one for each output, but got {short_repr(value, 40)}")
    return tuple(map(float, found))


def _written(values: float | tuple[float, ...]) -> str:
    if isinstance(values, float):
        return f"{values:.4g}"
    shown = ", ".join(f"{value:.4g}" for value in values[:_SHOWN])
    return f"({shown}{', …' if len(values) > _SHOWN else ''})"


_SHOWN = 4  # outputs named in a sentence
