"""Loss files: JSON that describes a loss, and no code.

A file is read by the JSON parser and by evomal's own expression parser over a closed set of tokens; sizes and depths
are capped before anything is built, and no name in a file is ever looked up as code.
"""

import json
import os
from pathlib import Path
from typing import Any, get_args

import torch

from evomal import __version__
from evomal.checks import Kind, path_to
from evomal.errors import InputError
from evomal.expression.prefix import MAX_SIZE
from evomal.files import MissingFileError, read_foreign, write_atomically
from evomal.forest.programs import ACTIVATIONS
from evomal.losses.catalogue import named_loss
from evomal.losses.contract import Reduction
from evomal.losses.expression_loss import ExpressionLoss
from evomal.losses.file_rules import (
    Rule,
    anything,
    broken,
    choice_of,
    entries_of,
    integer,
    list_of,
    number,
    option_of_a_loss,
    or_null,
    provenance,
    short_json,
    text,
)
from evomal.losses.loss import Loss, Provenance
from evomal.losses.neural import MAX_SIDE, NeuralLoss
from evomal.losses.taylor import PARAMETERS, TaylorLoss
from evomal.text import short_repr
from evomal.units import Units
from evomal.zoo import is_zoo_name, zoo_file

FORMAT, VERSION = "evomal-loss", 1
MAX_BYTES = 4 * 1024 * 1024
_MAX_TEXT = 100_000
_MAX_CLASSES = 100_000
_MAX_NAME = 1_000

_COMMON: dict[str, Rule] = {
    "weight": or_null(list_of(number, at_most=_MAX_CLASSES)),
    "ignore_index": integer,
    "reduction": choice_of(*get_args(Reduction)),
}
_OF_EXPRESSIONS: dict[str, Rule] = {
    "activation": choice_of(*ACTIVATIONS),
    "priors": or_null(list_of(number, at_most=_MAX_CLASSES)),
}
_OPTIONS = {
    "expression": entries_of("option", {**_COMMON, **_OF_EXPRESSIONS}),
    "taylor": entries_of("option", _COMMON),
    "neural": entries_of("option", _COMMON),
    "named": entries_of("option", _COMMON, others=option_of_a_loss),
}
_ROW = list_of(number, at_most=MAX_SIDE)
_CONTENT: dict[str, dict[str, Rule]] = {
    "expression": {"expression": text(_MAX_TEXT), "weights": or_null(list_of(number, at_most=MAX_SIZE))},
    "taylor": {"theta": list_of(number, at_least=PARAMETERS, at_most=PARAMETERS)},
    "neural": {"layers": list_of(list_of(_ROW, at_most=MAX_SIDE), at_least=3, at_most=3)},
    "named": {"name": text(_MAX_NAME)},
}
"""What the files of each kind hold besides the entries that all have; the first entry may not be missing."""
_FILES = {
    kind: entries_of(
        "entry",
        {
            "format": anything, "version": anything, "kind": anything, "task": choice_of(*get_args(Kind)), **content,
            "options": _OPTIONS[kind], "target_mean": anything, "target_scale": anything, "provenance": provenance,
        },
        required=("task", next(iter(content))),
    )
    for kind, content in _CONTENT.items()
}  # fmt: skip


def load_loss(path: str | os.PathLike[str]) -> Loss:
    """Reads a loss from a file.

    Args:
        path: A loss file, as written by `save_loss` or by hand, or `zoo:NAME` for one that comes with evomal.

    Returns:
        The loss, with its provenance and units.

    Raises:
        InputError: The file cannot be read or does not describe a loss; the message says what is wrong.

    Example:
        >>> load_loss("missing.json")
        Traceback (most recent call last):
        ...
        evomal.files.MissingFileError: missing.json: there is no such file
    """
    return _loaded(zoo_file(path) if is_zoo_name(path) else path_to("path", path), follow_links=True)


def is_loss_file(spec: str | os.PathLike[str]) -> bool:
    """Whether a text is `zoo:NAME` or the path of an existing file, as opposed to the name of a loss."""
    return is_zoo_name(spec) or os.path.exists(spec)


def find_loss(path: Path) -> Loss | None:
    """Reads a loss file in a folder, where a symbolic link is refused; None if there is no such file."""
    try:
        return _loaded(path, follow_links=False)
    except MissingFileError:
        return None


def _loaded(path: Path, *, follow_links: bool) -> Loss:
    content = read_foreign(path, limit=MAX_BYTES, follow_links=follow_links)
    try:
        return _from_document(_document(content))
    except InputError as error:
        raise InputError(f"{path}: {error}") from None


def save_loss(loss: Loss, path: str | os.PathLike[str], *, provenance: Provenance | None = None) -> None:
    """Writes a loss to a file that `load_loss` reads; after a crash the file is the old one or the new one.

    Args:
        loss: A loss of this package.
        path: The file; an existing one is replaced.
        provenance: Where the loss comes from, as short texts and numbers by name; None for what the loss itself holds.
            The versions of evomal and torch are added.

    Raises:
        InputError: The loss cannot be described by a file, or the file cannot be written.

    Example:
        >>> from evomal.losses import FocalLoss
        >>> save_loss(FocalLoss(gamma=3.0), "focal.json")  # doctest: +SKIP
    """
    if not isinstance(loss, Loss):
        raise InputError(f"only evomal's own losses can be saved but got {type(loss).__name__}")
    if not isinstance(provenance, dict | None):
        raise InputError(f"provenance must be a dictionary but got {short_repr(provenance)}")
    place = path_to("path", path)
    try:
        content = loss_content(loss, provenance=provenance)
    except InputError as error:
        raise InputError(f"{path}: {error}") from None
    write_atomically(place, content)


def loss_content(loss: Loss, *, provenance: Provenance | None = None) -> bytes:
    """Returns the content of the file that `save_loss` writes; raises InputError if `load_loss` could not read it."""
    document = loss_document(loss)
    versions = {"evomal": __version__, "torch": torch.__version__}
    document["provenance"] = {**(loss.provenance if provenance is None else provenance), "versions": versions}
    try:
        lines = ",\n".join(f'  "{key}": {json.dumps(value, allow_nan=False)}' for key, value in document.items())
        content = f"{{\n{lines}\n}}\n".encode()
        _from_document(_document(content))
    except InputError as error:
        raise InputError(f"this loss cannot be saved, as {error}") from None
    except (TypeError, ValueError) as error:
        raise InputError(f"this loss cannot be saved as JSON: {error}") from None
    return content


def _document(content: bytes) -> Any:
    try:
        return json.loads(content.decode(), object_pairs_hook=_unique)
    except UnicodeDecodeError as error:
        raise InputError(f"is not a JSON text file: byte {error.start} is not UTF-8") from None
    except json.JSONDecodeError as error:
        raise InputError(f"is not a JSON file: {error.msg} at line {error.lineno}, column {error.colno}") from None
    except RecursionError:
        raise InputError("is not a loss file: its brackets are nested too deeply") from None
    except InputError:
        raise
    except ValueError as error:  # a number too long for Python to convert
        raise InputError(f"is not a loss file: {error}") from None


def _from_document(document: Any) -> Loss:
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise InputError(f'is not a loss file: it must be a JSON object with "format": "{FORMAT}"')
    version = document.get("version")
    if type(version) is not int or version < 1:
        raise InputError(f"version must be a whole number of at least 1 but got {short_json(version)}")
    if version > VERSION:
        raise InputError(f"is of version {short_json(version)}, but this evomal reads version {VERSION}: update evomal")
    kind = document.get("kind")
    if not isinstance(kind, str) or kind not in _FILES:
        raise broken("kind", f"one of {', '.join(_FILES)}", kind)
    entries = _FILES[kind]("", document)
    loss = _built(kind, entries).in_units(_units(entries))
    loss.provenance = entries.get("provenance", {})
    return loss


def _built(kind: str, entries: dict[str, Any]) -> Loss:
    options: dict[str, Any] = entries.get("options", {})
    task: Kind = entries["task"]
    match kind:
        case "expression":
            return ExpressionLoss(entries["expression"], entries.get("weights"), kind=task, **options)
        case "taylor":
            return TaylorLoss(entries["theta"], kind=task, **options)
        case "neural":
            return NeuralLoss(entries["layers"], kind=task, **options)
    name: str = entries["name"]
    for reserved in {"kind", "name"} & set(options):
        raise InputError(f"{name} has no option {reserved!r}")
    return named_loss(name, kind=task, **options)


def _units(entries: dict[str, Any]) -> Units | None:
    """The units the loss was learned in; None if it does not standardise."""
    given = {name: entries[f"target_{name}"] for name in ("mean", "scale") if f"target_{name}" in entries}
    try:
        units = Units(**given)
    except InputError as error:
        raise InputError(f"target_{error}") from None
    return None if units == Units() else units


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise InputError(f"is not a loss file: {short_json(key)} occurs twice in one object")
        result[key] = value
    return result


def loss_document(loss: Loss) -> dict[str, Any]:
    """Returns what a loss file holds, provenance aside: losses with equal documents are equal."""
    return {"format": FORMAT, "version": VERSION, **loss.document()}
