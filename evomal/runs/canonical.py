"""Canonical JSON: one text for one value, so that equal content has equal bytes and an equal checksum."""

import hashlib
import json
from typing import Any, NoReturn

from evomal.errors import InputError


def canonical(value: Any) -> str:
    """The value as ASCII JSON with sorted keys; floats by their shortest exact form, NaN and infinity refused."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"must be texts, finite numbers, lists and dictionaries: {error}") from None


def parsed(text: str) -> Any:
    """What a text of canonical JSON says; NaN, keys that stand twice and brackets without end are refused."""
    try:
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_unique)
    except RecursionError:
        raise InputError("its brackets are nested too deeply") from None
    except InputError:
        raise
    except ValueError as error:  # broken JSON, or a number too long for Python to convert
        raise InputError(f"is not JSON: {error}") from None


def checksum(value: Any) -> str:
    """SHA-256 over the canonical JSON."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


def _refuse_constant(name: str) -> NoReturn:
    raise InputError(f"{name} is not a number")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) < len(pairs):
        raise InputError("a key stands twice in one object")
    return result
