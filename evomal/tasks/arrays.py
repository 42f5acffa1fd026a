"""Converts what users give as arrays, such as tensors, pandas frames or sparse matrices, to plain NumPy arrays."""

import sys
from collections.abc import Mapping, Sequence
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.utils.data import DataLoader, Dataset

from evomal.errors import InputError, UserCodeError
from evomal.text import one_line, plural, short_repr, with_article
from evomal.users_code import users_code

Array = npt.NDArray[Any]

LARGEST = float(np.finfo(np.float32).max)
"""The largest number that a task holds: models are trained in single precision."""
MOST_BYTES = 4 * 2**30
"""The size up to which data are read into memory or made dense: a constant, so that a task is the same everywhere."""
_TEXT = ("text", ": encode text as numbers, such as pandas.get_dummies or token ids")
_MISSING = ": fill missing values, or drop their rows"


def number_array(values: Any, place: str, advice: str | None = None) -> Array:
    """Return an array of real numbers, or raise: nothing masked, missing, complex, or of another type.

    Args:
        values: What was given.
        place: What errors call it.
        advice: What to do about values that are not numbers; None: the usual advice for inputs.
    """
    array = plain_array(values, place)
    if array.dtype.kind == "O" and all(isinstance(value, Real) for value in array.flat):
        array = np.array(array.tolist())
    if array.dtype.kind not in "fiub":
        received, usual = _received(array)
        raise InputError(f"{place} must hold real numbers but got {received}{usual if advice is None else advice}")
    if array.dtype == np.uint64 and array.size and array.max() > np.iinfo(np.int64).max:
        raise InputError(f"{place} must hold whole numbers below 2^63 but one is {array.max()}")
    return array.astype(np.float64) if array.dtype == np.longdouble else array


def plain_array(values: Any, place: str) -> Array:
    """Return an array of numbers, texts or other values, which has a row for each sample, or raise."""
    if isinstance(values, np.ma.MaskedArray):
        mask = np.ma.getmaskarray(values)
        if mask.any():
            row = int(np.argwhere(mask)[0][0])
            raise InputError(f"{place} must have no masked values but row {row} has one")
    if isinstance(values, Dataset | DataLoader):
        builder = "from_datasets" if isinstance(values, Dataset) else "from_loaders"
        raise InputError(f"{place} must be an array but got {with_article(type(values).__name__)}: use Task.{builder}")
    if isinstance(values, str | bytes | Mapping | set | frozenset | None) or callable(values):
        advice = ": give the values themselves, not their name" if isinstance(values, str) else ""
        raise InputError(f"{place} must be an array with a row for each sample but got {short_repr(values)}{advice}")
    if is_pandas(values):
        return _from_frame(values, place) if values.ndim == 2 else _from_series(values, place)
    if _package(values) == "scipy" and hasattr(values, "toarray"):
        return _dense(values, place)
    return _from_array_like(values, place)


def column(values: Any, name: str, rows: int) -> Array:
    """Return one value for each row, of any type that can be sorted, or raise."""
    array = plain_array(values, name)
    if array.ndim == 2 and array.shape[1] == 1:
        array = array[:, 0]
    if array.shape != (rows,):
        raise InputError(f"{name} must have one value for each of {plural(rows, 'row')} but has shape {array.shape}")
    missing = array != array  # true for NaN and NaT
    if array.dtype.kind == "O":
        missing |= np.array([value is None for value in array])
    if missing.any():
        raise InputError(f"{name} must have no missing values but row {int(missing.argmax())} has one")
    return array


def is_pandas(values: Any) -> bool:
    """Whether it is a pandas frame, series or index; pandas is not imported to find out."""
    return _package(values) == "pandas" and hasattr(values, "to_numpy") and hasattr(values, "ndim")


def check_finite(array: Array, name: str) -> None:
    """Raise unless all numbers are finite in single precision."""
    if array.dtype.kind != "f":
        return
    strange = ~(np.abs(array) <= LARGEST) if array.dtype == np.float64 else ~np.isfinite(array)
    if strange.any():
        place = tuple(int(index) for index in np.argwhere(strange)[0])
        if not np.isfinite(array[place]):
            advice = _MISSING if np.isnan(array[place]) else ""
            raise InputError(f"{name} must be finite but {name}{list(place)} is {array[place]}{advice}")
        raise InputError(f"{name} must be at most {LARGEST:.4g} in size but {name}{list(place)} is {array[place]:.4g}")


def check_same_index(given: Mapping[str, Any]) -> None:
    """Raise if two pandas objects name the same rows in different orders: rows are matched by position."""
    indexes = {name: values.index for name, values in given.items() if is_pandas(values) and hasattr(values, "index")}
    for name, index in indexes.items():
        first = next(iter(indexes))
        if index.equals(indexes[first]) or not index.is_unique:
            continue
        if index.sort_values().equals(indexes[first].sort_values()):
            raise InputError(
                f"{first} and {name} must have their rows in the same order but their indices differ in order: "
                f"give {name}.loc[{first}.index]"
            )


def _package(values: Any) -> str:
    return type(values).__module__.partition(".")[0]


def _from_array_like(values: Any, place: str) -> Array:
    try:
        if isinstance(values, Sequence) and len(values) and all(isinstance(value, Tensor) for value in values):
            values = _stacked(values, place)
        if isinstance(values, Tensor):
            # NumPy has neither bfloat16 nor smaller floats; single precision holds all of their values.
            is_known = not values.is_floating_point() or values.dtype in (torch.float16, torch.float32, torch.float64)
            values = (values if is_known else values.float()).detach().cpu().numpy()
        with users_code(place):
            array = np.asarray(values)
    except UserCodeError as error:
        if isinstance(error.__cause__, ValueError):
            raise _ragged(place) from None
        raise
    except (TypeError, RuntimeError) as error:  # such as a sparse, quantised or empty tensor without memory
        raise InputError(f"{place} must be an ordinary tensor of numbers: {one_line(error)}") from None
    if array.ndim == 0:
        raise InputError(f"{place} must be an array with a row for each sample but got {short_repr(values)}")
    return array


def _stacked(rows: Sequence[Tensor], place: str) -> Tensor:
    try:
        return torch.stack(list(rows))
    except RuntimeError:
        raise _ragged(place) from None


def _ragged(place: str) -> InputError:
    return InputError(
        f"{place} must have rows of one shape but they differ: pad them to one length, or use Task.from_loaders"
    )


def _dense(matrix: Any, place: str) -> Array:
    """A SciPy sparse matrix as a dense array."""
    size = int(np.prod(matrix.shape, dtype=object)) * max(4, matrix.dtype.itemsize)
    if size > MOST_BYTES:
        raise InputError(
            f"{place} is sparse and must take at most {MOST_BYTES / 2**30:g} GiB as a dense array but would take "
            f"{size / 2**30:,.1f} GiB: select columns first, or reduce them, as with sklearn's TruncatedSVD"
        )
    array: Array = matrix.toarray()
    return array


def _from_frame(frame: Any, place: str) -> Array:
    columns = [
        _from_series(frame.iloc[:, number], f"column {short_repr(name)} of {place}")
        for number, name in enumerate(frame.columns)
    ]
    if not columns:
        raise InputError(f"{place} must have at least one column but has none")
    are_numbers = [column.dtype.kind in "fiub" for column in columns]
    if any(are_numbers) and not all(are_numbers):
        number = are_numbers.index(False)
        column, name = columns[number], short_repr(frame.columns[number])
        raise InputError(f"column {name} of {place} must hold numbers but holds {''.join(_received(column))}")
    return np.column_stack(columns)


def _from_series(series: Any, place: str) -> Array:
    types = sys.modules["pandas"].api.types  # imported already, as there is a series
    if getattr(series, "nlevels", 1) > 1:
        raise InputError(f"{place} must be a column or a frame but is an index of several levels")
    if (missing := np.asarray(series.isna())).any():
        row = int(missing.argmax())
        raise InputError(f"{place} must have no missing values but row {row} has one{_MISSING}")
    dtype = series.dtype
    if types.is_bool_dtype(dtype):
        array = series.to_numpy(dtype=bool)
    elif types.is_datetime64_any_dtype(dtype):
        array = series.to_numpy(dtype="datetime64[ns]")
    elif types.is_numeric_dtype(dtype) and types.is_extension_array_dtype(dtype):
        array = series.to_numpy(dtype=np.int64 if types.is_integer_dtype(dtype) else np.float64)
    else:
        array = series.to_numpy()
    found: Array = np.asarray(array)
    return found


def _received(array: Array) -> tuple[str, str]:
    """Return what an array that is not numeric holds, and what to do about it."""
    by_kind = {
        "U": _TEXT,
        "T": _TEXT,
        "M": ("times", ": convert times to numbers, such as days since the first"),
        "m": ("times", ": convert times to numbers, such as seconds"),
        "V": ("records", ": give a plain array of shape (samples, features)"),
    }
    if array.dtype.kind != "O":
        return by_kind.get(array.dtype.kind, (str(array.dtype), ""))
    if all(isinstance(value, Real) for value in array.flat):
        return "whole numbers of more than 64 bits", ""
    strange = next((value for value in array.flat if not isinstance(value, Real)), None)
    if isinstance(strange, str):
        return _TEXT
    if isinstance(strange, Mapping):
        return "dictionaries", ": give one dictionary of arrays instead"
    if isinstance(strange, list | tuple | np.ndarray):
        return "rows that differ in length", ": pad them to one length, or use Task.from_loaders"
    return ("missing values", _MISSING) if strange is None else (with_article(type(strange).__name__), "")
