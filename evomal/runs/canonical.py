"""Canonical JSON: one text for one value, so that equal content has equal bytes and an equal checksum."""

import hashlib
import importlib.metadata
import json
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

from evomal import __version__
from evomal.errors import InputError


def canonical(value: Any) -> str:
    """The value as ASCII JSON with sorted keys; floats by their shortest exact form, NaN and infinity refused."""
    try:
        return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    except (TypeError, ValueError, RecursionError) as error:
        raise InputError(f"must be strings, finite numbers, lists and dictionaries: {error}") from None


def parsed(text: str) -> Any:
    """The value of a JSON text; NaN, keys that occur twice and brackets nested too deeply are refused."""
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
        raise InputError("a key occurs twice in one object")
    return result


# Everything that can change a computed number; a method adds its own settings.
REQUIRED = ("seed", "task", "device", "population_mode", "chunk", "threads", "precision", "versions")
REQUIRED_VERSIONS = ("evomal", "torch", "numpy", "python")
_PACKAGES = ("torch", "numpy", "numba", "cmaes")
_MAX_SETTINGS = 4 * 1024 * 1024


@dataclass(frozen=True)
class Difference:
    """A setting with two values, as JSON or None where it is missing; nested keys are joined by dots."""

    key: str
    recorded: str | None
    given: str | None

    def __str__(self) -> str:
        return f"{self.key} was {self.recorded or 'not set'} but is {self.given or 'not set'}"


def versions() -> dict[str, str]:
    """The versions of everything that computes or draws random numbers: Python, and the installed packages."""
    found = {"python": platform.python_version(), "evomal": __version__}
    for name in _PACKAGES:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


def settings_text(settings: Mapping[str, Any]) -> str:
    """The settings as canonical JSON, or an error that names what is missing or cannot be recorded."""
    for key in REQUIRED:
        if key not in settings:
            raise InputError(f"the settings of a run must have {key!r}, without which it cannot be repeated")
    recorded_versions = settings["versions"]
    for name in REQUIRED_VERSIONS:
        if not isinstance(recorded_versions, Mapping) or name not in recorded_versions:
            raise InputError(f"the settings of a run must have the version of {name} under 'versions'")
    text = _normal_text(settings)
    if len(text) > _MAX_SETTINGS:
        raise InputError(f"the settings of a run must have at most {_MAX_SETTINGS} characters but got {len(text)}")
    return text


def differences(recorded: Mapping[str, Any], given: Mapping[str, Any]) -> tuple[Difference, ...]:
    """All keys that differ, sorted; 1 and 1.0 differ, because that can change a computed number."""
    first, second = _flat(recorded), _flat(parsed(_normal_text(given)))
    return tuple(
        Difference(key, first.get(key), second.get(key))
        for key in sorted(first.keys() | second.keys())
        if first.get(key) != second.get(key)
    )


def _normal_text(settings: Mapping[str, Any]) -> str:
    try:
        _require_text_keys(settings)
        return canonical(dict(settings))
    except RecursionError:
        raise InputError("the settings of a run are nested too deeply") from None
    except InputError as error:
        raise InputError(f"the settings of a run {error}") from None


def _flat(settings: Mapping[str, Any]) -> dict[str, str]:
    leaves: dict[str, str] = {}
    waiting: list[tuple[str, Any]] = [("", settings)]
    while waiting:
        prefix, value = waiting.pop()
        if isinstance(value, Mapping) and (value or not prefix):
            for key, inner in value.items():
                name = canonical(key) if "." in key or not key else key
                waiting.append((f"{prefix}.{name}" if prefix else name, inner))
        else:
            leaves[prefix] = canonical(value)
    return leaves


def _require_text_keys(value: Any) -> None:
    """Raise InputError for other keys: JSON would silently turn them into strings, and could make two of them equal."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InputError(f"must have strings as keys but got {key!r}")
            _require_text_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _require_text_keys(inner)
