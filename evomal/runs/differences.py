"""What is recorded of a run's settings, and where others differ from it."""

import importlib.metadata
import platform
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from evomal.errors import InputError
from evomal.runs.canonical import canonical, parsed

# Everything that can change a float; a method's own settings stand beside them.
REQUIRED = ("seed", "task", "device", "population_mode", "chunk", "threads", "precision", "versions")
REQUIRED_VERSIONS = ("evomal", "torch", "numpy", "python")
_PACKAGES = ("evomal", "torch", "numpy", "numba", "cmaes")
_MAX_SETTINGS = 4 * 1024 * 1024


@dataclass(frozen=True)
class Difference:
    """A key, nested ones with dots, whose values differ; both as JSON, None where the key is not there."""

    key: str
    recorded: str | None
    given: str | None

    def __str__(self) -> str:
        return f"{self.key} was {self.recorded or 'not set'} but is {self.given or 'not set'}"


def versions() -> dict[str, str]:
    """The versions of all that computes or draws: Python, and the packages that are installed."""
    found = {"python": platform.python_version()}
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
    """All keys that differ, sorted; 1 and 1.0 differ, as they can change a float."""
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
    """JSON would turn other keys into texts in silence, and two of them into one."""
    if isinstance(value, Mapping):
        for key, inner in value.items():
            if not isinstance(key, str):
                raise InputError(f"must have texts as keys but got {key!r}")
            _require_text_keys(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            _require_text_keys(inner)
