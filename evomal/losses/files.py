"""Loss files: JSON that describes a loss, and no code.

A file is read by the JSON parser and by evomal's own expression parser over a closed set of tokens; sizes and depths
are capped before anything is built, and no name in a file is ever looked up as code.
"""

import importlib.metadata
import json
import math
import os
from pathlib import Path
from typing import Annotated, Any, Literal

import torch
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, FiniteFloat, TypeAdapter, ValidationError
from pydantic_core import PydanticCustomError

from evomal.checks import path_to
from evomal.errors import InputError
from evomal.expression.prefix import MAX_SIZE
from evomal.files import MissingFileError, read_foreign, write_atomically
from evomal.losses.catalogue import named_loss
from evomal.losses.contract import Kind, Reduction
from evomal.losses.expression_loss import ExpressionLoss
from evomal.losses.loss import Loss, Provenance
from evomal.losses.neural import MAX_SIDE, NeuralLoss
from evomal.losses.taylor import PARAMETERS, TaylorLoss
from evomal.text import short_repr, shorten
from evomal.units import Units

FORMAT, VERSION = "evomal-loss", 1
MAX_BYTES = 4 * 1024 * 1024
_MAX_TEXT = 100_000
_MAX_CLASSES = 100_000
_MAX_ENTRY = 1_000

_Number = Annotated[FiniteFloat, Field(strict=True)]
_ShortText = Annotated[str, Field(max_length=_MAX_ENTRY)]


def _checked_provenance(provenance: dict[str, Any]) -> dict[str, Any]:
    """Accept only short texts and numbers by name, with at most one level of nesting."""
    for name, value in provenance.items():
        for inner in value.values() if isinstance(value, dict) else (value,):
            is_number = (isinstance(inner, int) and abs(inner) < 2**63) or (
                isinstance(inner, float) and math.isfinite(inner)
            )
            is_text = isinstance(inner, str) and len(inner) <= _MAX_ENTRY
            if not (inner is None or is_number or is_text) or len(name) > _MAX_ENTRY:
                raise PydanticCustomError("provenance", "entries must be short texts or finite numbers")
    return provenance


class _Strict(BaseModel):
    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)


class _Options(_Strict):
    weight: Annotated[list[_Number], Field(max_length=_MAX_CLASSES)] | None = None
    ignore_index: int = Field(default=-100, ge=-(2**63), lt=2**63)
    reduction: Reduction = "mean"


class _ExpressionOptions(_Options):
    activation: Literal["identity", "softplus"] = "identity"
    priors: Annotated[list[_Number], Field(max_length=_MAX_CLASSES)] | None = None


class _NamedOptions(_Options):
    model_config = ConfigDict(extra="allow")
    __pydantic_extra__: dict[
        str, bool | int | _Number | Annotated[list[_Number], Field(max_length=_MAX_CLASSES)] | None
    ]


class _File(_Strict):
    format: Literal["evomal-loss"]
    version: Literal[1]
    task: Kind
    options: _Options = _Options()
    target_mean: Any = None
    """A number or one for each output, as `Units` checks; absent: 0."""
    target_scale: Any = None
    """Likewise; absent: 1."""
    provenance: Annotated[dict[str, Any], AfterValidator(_checked_provenance)] = {}

    def units(self) -> Units | None:
        """The units the loss was learned in; None if it does not standardise."""
        given = {"mean": self.target_mean, "scale": self.target_scale}
        try:
            units = Units(**{name: value for name, value in given.items() if value is not None})
        except InputError as error:
            raise InputError(f"target_{error}") from None
        return None if units == Units() else units

    def build(self) -> Loss:
        raise NotImplementedError


class _ExpressionFile(_File):
    kind: Literal["expression"]
    expression: Annotated[str, Field(max_length=_MAX_TEXT)]
    weights: Annotated[list[_Number], Field(max_length=MAX_SIZE)] | None = None
    options: _ExpressionOptions = _ExpressionOptions()

    def build(self) -> Loss:
        return ExpressionLoss(self.expression, self.weights, kind=self.task, **self.options.model_dump())


class _TaylorFile(_File):
    kind: Literal["taylor"]
    theta: Annotated[list[_Number], Field(min_length=PARAMETERS, max_length=PARAMETERS)]

    def build(self) -> Loss:
        return TaylorLoss(self.theta, kind=self.task, **self.options.model_dump())


_Row = Annotated[list[_Number], Field(max_length=MAX_SIDE)]
_Matrix = Annotated[list[_Row], Field(max_length=MAX_SIDE)]


class _NeuralFile(_File):
    kind: Literal["neural"]
    layers: Annotated[list[_Matrix], Field(min_length=3, max_length=3)]

    def build(self) -> Loss:
        return NeuralLoss(self.layers, kind=self.task, **self.options.model_dump())


class _NamedFile(_File):
    kind: Literal["named"]
    name: _ShortText
    options: _NamedOptions = _NamedOptions()

    def build(self) -> Loss:
        options = self.options.model_dump()
        for reserved in {"kind", "name"} & set(options):
            raise InputError(f"{self.name} has no option {reserved!r}")
        return named_loss(self.name, kind=self.task, **options)


_FILE: TypeAdapter[_File] = TypeAdapter(
    Annotated[_ExpressionFile | _TaylorFile | _NeuralFile | _NamedFile, Field(discriminator="kind")]
)


def load_loss(path: str | os.PathLike[str]) -> Loss:
    """Reads a loss from a file.

    Args:
        path: A loss file, as written by `save_loss` or by hand.

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
    return _loaded(path_to("path", path), follow_links=True)


def find_loss(path: Path) -> Loss | None:
    """Reads a loss file that was found in a folder, where it may not be a link; None if there is none."""
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
    document["provenance"] = {**(loss.provenance if provenance is None else provenance), "versions": _versions()}
    lines = ",\n".join(f"  {json.dumps(key)}: {_json(value)}" for key, value in document.items())
    content = f"{{\n{lines}\n}}\n".encode()
    try:
        _from_document(_document(content))
    except InputError as error:
        raise InputError(f"this loss cannot be saved, as {error}") from None
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
        raise InputError(f"version must be a whole number of at least 1 but got {_short(version)}")
    if version > VERSION:
        raise InputError(
            f"is of version {_short(version)}, newer than version {VERSION} that this evomal reads: update evomal"
        )
    try:
        file = _FILE.validate_python(document)
    except ValidationError as error:
        raise InputError(_sentence(error)) from None
    loss = file.build().in_units(file.units())
    loss.provenance = file.provenance
    return loss


def _sentence(error: ValidationError) -> str:
    """The first error that pydantic found: the place, the rule, the value received."""
    first = error.errors(include_url=False)[0]
    if first["type"].startswith("union_tag"):
        return f"kind must be one of expression, taylor, neural, named but got {_short(first['input'].get('kind'))}"
    place = ".".join(str(part) for part in first["loc"][1:])[:80]  # after the kind, which pydantic puts first
    rule = first["msg"][:1].lower() + first["msg"][1:]
    received = "" if first["type"] == "missing" else f" but got {_short(first['input'])}"
    return f"{place}: {rule}{received}"


def _short(value: Any) -> str:
    """The value as JSON, for an error message."""
    try:
        return shorten(json.dumps(value, default=str), 40)
    except (RecursionError, ValueError):  # nested too deeply, or a number with too many digits to be printed
        return "something too large to show"


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key, value in pairs:
        if key in result:
            raise InputError(f"is not a loss file: {_short(key)} occurs twice in one object")
        result[key] = value
    return result


def loss_document(loss: Loss) -> dict[str, Any]:
    """Returns what a loss file holds, provenance aside: losses with equal documents are equal."""
    return {"format": FORMAT, "version": VERSION, **loss.document()}


def _versions() -> dict[str, str]:
    return {"evomal": importlib.metadata.version("evomal"), "torch": torch.__version__}


def _json(value: Any) -> str:
    try:
        return json.dumps(value, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise InputError(f"this loss cannot be saved as JSON: {error}") from None
