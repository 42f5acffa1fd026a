"""The settings of a search, validated once: from presets, files and texts.

What depends on the task or the device, such as whether there is a GPU, is checked where it is used.
"""

import itertools
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

from pydantic import ValidationError, model_validator

from evomal.checks import one_of, path_to
from evomal.errors import InputError
from evomal.settings.fields import DEFAULT_PRESET, PRESETS, SettingFields
from evomal.settings.texts import document, input_error, read_text, setting_text, type_text
from evomal.text import short_repr

WORKPLACE = ("executor", "address", "workers", "gpus_per_worker", "worker_timeout", "retries")
"""Settings that say where candidates are computed. They change no result, so they may differ when a run is resumed."""

RECIPE_SETTINGS = ("lr", "momentum", "nesterov", "weight_decay", "batch_size", "schedule", "warmup", "clip")
_ONE_ISLAND = ("crossover", "mutation", "elitism", "parsimony")


class SearchSettings(SettingFields):
    """The settings of a search besides its task, method and seed; the defaults are the paper's.

    Settings are validated here, once; everything that is given a `SearchSettings` trusts it. Types are strict: a text
    is not a number, and 1 is not true. `describe` lists all settings with their descriptions.

    Raises:
        InputError: A value breaks a rule; the sentence names the setting, the rule and the value.

    Example:
        >>> SearchSettings.preset("quick", population=10).generations
        8
    """

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise input_error(error, type(self).model_fields) from None

    def __repr__(self) -> str:
        fields = type(self).model_fields
        changed = {name: value for name, value in self if value != fields[name].default}
        return f"SearchSettings({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    __str__ = __repr__

    def __setattr__(self, name: str, value: Any) -> None:
        raise InputError(f"settings cannot be changed, but {name} was assigned: use with_changes")

    @model_validator(mode="before")
    @classmethod
    def _one_thread_per_worker(cls, values: Any) -> Any:
        # Set here, so that the record says what was used, and the same search can be resumed elsewhere.
        if isinstance(values, dict) and values.get("executor") == "ray" and values.get("threads") is None:
            return {**values, "threads": 1}
        return values

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.executor == "local":
            for name in WORKPLACE[1:]:
                if getattr(self, name) != type(self).model_fields[name].default:
                    raise InputError(f"{name} is for executor ray, but executor is local")
        if self.crossover + self.mutation > 1:
            together = self.crossover + self.mutation
            raise InputError(f"crossover and mutation must be at most 1 together but got {together:g}")
        for name in _ONE_ISLAND if self.islands > 1 else ():
            if getattr(self, name) != type(self).model_fields[name].default:
                raise InputError(f"{name} is for one island, but islands is {self.islands}")
        if not self.rung_seeds:
            raise InputError("rung_seeds must have at least one number but got none")
        if self.rungs[-1:] != (1.0,) or any(later <= earlier for earlier, later in itertools.pairwise(self.rungs)):
            raise InputError(f"rungs must be shares that increase and end with 1 but got {setting_text(self.rungs)}")
        if len(self.rungs) > 1 and not self.tried_rates:
            raise InputError("several rungs need tried_rates to be at least 1 but got 0")
        low, high = self.initial_height
        if low > high:
            raise InputError(f"initial_height must go from the lower height to the higher but got {low} to {high}")
        if high > self.max_height:
            raise InputError(f"initial_height must be at most max_height = {self.max_height} but got {high}")
        return self

    @classmethod
    def preset(cls, name: str, /, **changes: Any) -> Self:
        """The settings of a preset, `quick`, `thorough` or `paper`, with changes."""
        return cls(**{**PRESETS[one_of("preset", name, PRESETS)], **changes})

    @classmethod
    def given(cls, settings: Self | None, preset: str, changes: Mapping[str, Any]) -> Self:
        """The settings for a function that takes `settings`, or else a preset with changes."""
        if settings is None:
            return cls.preset(preset, **changes)
        if not isinstance(settings, cls):
            raise InputError(f"settings must be SearchSettings but got {short_repr(settings)}")
        if changes:
            raise InputError(f"settings are given already, so they cannot be changed by {', '.join(changes)}")
        return settings

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, preset: str | None = None) -> Self:
        """The settings of a TOML file over a preset: the given one, or that of its key `preset`, or `quick`."""
        given = None if preset is None else cls.preset(preset)  # outside the try, since the file did not name it
        values = document(path_to("path", path))
        try:
            own = values.pop("preset", DEFAULT_PRESET)
            return (cls.preset(own) if given is None else given).with_changes(**values)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def with_changes(self, /, **changes: Any) -> Self:
        """These settings with some changes; all rules are checked again."""
        return type(self)(**{**dict(self), **changes})

    def with_texts(self, texts: Iterable[str]) -> Self:
        """These settings with changes written as `key=value`; lists have commas, and `none` stands for None."""
        changes: dict[str, Any] = {}
        given: Any = texts
        try:
            every = [*given]
        except TypeError:  # such as a tensor of one number, which has an iterator that raises
            every = [given]
        for text in every:
            if not isinstance(text, str):
                raise InputError(f"a setting must be given as key=value but got {short_repr(text)}")
            key, equals, value = (part.strip() for part in text.partition("="))
            if not (key and equals):
                raise InputError(f"a setting must be given as key=value but got {short_repr(text)}")
            field = type(self).model_fields.get(key)
            changes[key] = value if field is None else read_text(value, field.annotation)
        return self.with_changes(**changes)

    def as_texts(self) -> dict[str, str]:
        """All settings as texts that `with_texts` reads.

        Example:
            >>> SearchSettings(initial_height=(1, 3)).as_texts()["initial_height"]
            '1,3'
        """
        return {name: setting_text(value) for name, value in self}

    def recipe_changes(self) -> dict[str, Any]:
        """The settings of the training recipe, beside the optimizer, that replace the task's own."""
        return {name: value for name in RECIPE_SETTINGS if (value := getattr(self, name)) is not None}


@dataclass(frozen=True)
class SettingDescription:
    """One setting, for help texts and documentation."""

    name: str
    type: str
    """Such as `whole number`, `one of auto, stacked, looped`, `number or none`."""
    presets: Mapping[str, Any]
    """Its default in each preset."""
    description: str


def describe() -> tuple[SettingDescription, ...]:
    """All settings in order, with type, defaults and description: the source of help texts and documentation.

    Example:
        >>> describe()[1].presets
        {'quick': 8, 'thorough': 20, 'paper': 50}
    """
    return tuple(
        SettingDescription(
            name,
            type_text(field.annotation),
            {preset: changes.get(name, field.default) for preset, changes in PRESETS.items()},
            field.description or "",
        )
        for name, field in SearchSettings.model_fields.items()
    )


def preset_of_file(path: str | os.PathLike[str]) -> str:
    """The preset that a TOML file of settings names, or `quick`."""
    return str(document(Path(path)).get("preset", DEFAULT_PRESET))
