"""Labels of any type as class numbers, and class numbers as labels again."""

from collections import Counter
from collections.abc import Sequence
from numbers import Real
from typing import Any

import numpy as np
import numpy.typing as npt

from evomal.errors import InputError
from evomal.tasks.arrays import Array, is_pandas, plain_array
from evomal.text import plural, short_repr

Classes = tuple[str | int | float | bool, ...]
"""What the class numbers 0, 1, … stand for; all of one type."""
IGNORED = -100
"""The class number of positions that count in no loss and no metric: the default `ignore_index` of torch's losses."""


def encoded_labels(
    labels: Any, place: str, *, classes: Sequence[Any] | None = None, ignored: Any = IGNORED
) -> tuple[Array, Classes | None]:
    """Return the class number of each label, and what the numbers stand for.

    Labels that are numbers are class numbers already, unless `classes` holds numbers, too. Texts are numbered in
    alphabetical order, pandas categories in their own order, and False and True are 0 and 1.

    Args:
        labels: The labels, of any shape.
        place: What errors call them.
        classes: The classes in the order of their numbers; None: those that occur.
        ignored: The label of positions that do not count; their class number is `IGNORED`.

    Returns:
        The class numbers, and the classes; None if the numbers stand for themselves.

    Raises:
        InputError: A label is missing, or is none of the classes, or the labels differ in type.

    Example:
        >>> encoded_labels(["cat", "dog", "cat"], "y")
        (array([0, 1, 0]), ('cat', 'dog'))
    """
    array, order = _label_array(labels, place)
    given = None if classes is None else checked_classes(classes)
    is_number = array.dtype.kind in "iuf"
    if is_number and (given is None or isinstance(given[0], str)):
        return _with_ignored(array, ignored), given
    if is_number or given is None or not isinstance(given[0], str) or array.dtype.kind != "b":
        return _numbered(array, place, given, order, ignored)
    return array.astype(np.int64), given  # names for False and True


def labels_like(labels: Any, place: str, classes: Classes | None, *, ignored: Any = IGNORED) -> Array:
    """Return the class number of each label of another part; the training part has decided what the classes are."""
    array, _ = _label_array(labels, place)
    wanted = "numbers" if classes is None else _kind(classes[0])
    if wanted != (found := {"U": "texts", "b": "truth values"}.get(array.dtype.kind, "numbers")):
        raise InputError(f"{place} must hold {wanted} as labels, as the training part does, but holds {found}")
    if classes is None:
        return _with_ignored(array, ignored)
    return _numbered(array, place, classes, None, ignored)[0]


def checked_classes(classes: Any, *, at_least: int = 2) -> Classes:
    """Return the classes as a tuple of texts or numbers, all different, or raise."""
    if isinstance(classes, np.ndarray) or is_pandas(classes):
        classes = classes.tolist() if classes.ndim == 1 else classes
    if not isinstance(classes, list | tuple) or len(classes) < at_least:
        raise InputError(
            f"classes must be a list of at least {plural(at_least, 'class')} but got {short_repr(classes)}"
        )
    found: Classes = tuple(value.item() if isinstance(value, np.generic) else value for value in classes)
    for value in found:
        if not isinstance(value, str | int | float):
            raise InputError(f"classes must be strings or numbers but one is {short_repr(value)}")
        if isinstance(value, str) != isinstance(found[0], str):
            raise InputError(f"classes must be all texts or all numbers but got {short_repr(classes)}")
    if repeated := [value for value, times in Counter(found).items() if times > 1]:
        raise InputError(f"classes must be different but {short_repr(repeated[0])} is among them twice")
    return found


def class_name(number: int, classes: Classes | None) -> str:
    """Return what sentences call a class."""
    return str(number) if classes is None else short_repr(classes[number])


def decoded_labels(numbers: npt.NDArray[np.int64], classes: Classes | None, outputs: int) -> Array:
    """Return the class of each class number."""
    if numbers.size and not 0 <= numbers.min() <= numbers.max() < outputs:
        raise InputError(
            f"class numbers must lie between 0 and {outputs - 1} but range from {numbers.min()} to {numbers.max()}"
        )
    return numbers if classes is None else np.array(classes)[numbers]


def _label_array(labels: Any, place: str) -> tuple[Array, list[Any] | None]:
    """Return the labels as numbers, truth values or texts, and the order of their classes where they have one."""
    if is_pandas(labels) and hasattr(labels, "cat"):
        used = labels.cat.remove_unused_categories().cat.categories
        return _plain(plain_array(labels, place), place), used.tolist()
    array = plain_array(labels, place)
    if isinstance(labels, Sequence) and array.dtype.kind == "U":
        array = np.array(labels, dtype=object)  # NumPy would convert everything to texts if one entry is a text
    return _plain(array, place), None


def _plain(array: Array, place: str) -> Array:
    """Return labels as numbers, truth values or texts."""
    if array.dtype.kind in "fiubU":
        return array
    if array.dtype.kind not in "OT":
        raise InputError(f"{place} must hold numbers or texts as labels but got {array.dtype}")
    for index, value in np.ndenumerate(array):
        if value is None or value != value:
            raise InputError(f"{place} must have no missing labels but row {index[0]} has one: drop its row")
    kinds = {_kind(value) for value in array.flat}
    if len(kinds) != 1 or None in kinds:
        named = " and ".join(sorted({type(value).__name__ for value in array.flat})[:3])
        raise InputError(f"{place} must hold labels of one type, numbers or texts, but holds {named}")
    plain = np.array(array.tolist())
    if plain.dtype.kind == "O":
        raise InputError(f"{place} must hold class numbers of at most 64 bits but one has more")
    return plain


def _kind(label: Any) -> str | None:
    kinds = {"texts": str, "truth values": bool | np.bool_, "numbers": Real}
    return next((name for name, kind in kinds.items() if isinstance(label, kind)), None)


def _with_ignored(numbers: Array, ignored: Any) -> Array:
    wide = numbers if numbers.dtype.kind == "f" else numbers.astype(np.int64)  # bytes have no negative numbers
    return np.where(wide == ignored, IGNORED, wide)


def _numbered(
    array: Array, place: str, given: Classes | None, order: list[Any] | None, ignored: Any
) -> tuple[Array, Classes]:
    """Return the number of each label among the classes, and the classes."""
    is_text = array.dtype.kind == "U"
    counted = array != ignored if isinstance(ignored, str) == is_text else np.ones(array.shape, bool)
    if array.dtype.kind == "b" and given is None:
        given = (False, True)
    found = given or tuple(order or np.unique(array[counted]).tolist())
    if len(found) < 2:
        raise InputError(f"{place} must hold at least two classes but all labels are {short_repr((*found, None)[0])}")
    number_of = {label: number for number, label in enumerate(found)}
    distinct, inverse = np.unique(array, return_inverse=True)
    numbers = np.array([number_of.get(label, IGNORED) for label in distinct.tolist()], np.int64)
    encoded = numbers[inverse].reshape(array.shape)
    if (unknown := (encoded == IGNORED) & counted).any():
        index = tuple(np.argwhere(unknown)[0])
        label, known = short_repr(array[index].item()), short_repr(list(found))
        raise InputError(f"{place} must hold labels among the classes {known} but row {index[0]} has {label}")
    return encoded, found
