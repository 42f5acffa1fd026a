"""The settings of a search: the paper's values (EvoMAL, sections 3 and 4), presets, files and texts.

What can only be known with the task or the device at hand, such as whether there is a GPU, is checked where it is used.
"""

import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Self, Union, get_args, get_origin

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    model_validator,
)

from evomal.checks import one_of, unknown_name
from evomal.errors import InputError
from evomal.text import short_repr

Filter = Literal["symbolic", "dead", "rejection", "gradient"]
"""In the order in which they are asked."""

PRESETS: Mapping[str, Mapping[str, Any]] = {
    "quick": {
        "generations": 10,
        "meta_steps": 100,
        "training_steps": 250,
        "filter_steps": 250,
        "final_steps": 2000,
        "finalists": 10,
    },
    "paper": {},
}
"""What each changes of the defaults, which are the paper's: `quick` takes minutes on two cores."""

WORKPLACE = ("executor", "address", "workers", "gpus_per_worker", "worker_timeout", "retries")
"""Settings that say where candidates are worked on, which changes no number: they may differ on resuming."""

_DEFAULT_PRESET = "quick"
_RECIPE = ("lr", "momentum", "nesterov", "weight_decay", "batch_size")
_HIGHEST_TREE = 32  # a crossover can double it before the cap is applied, and no tree may be higher than 64
_HIGHEST_START = 12  # a full tree of this height is the largest that a tree may be
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_TIME = re.compile(rf"(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?")

_RULES = {
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "more than {gt:.12g}",
    "greater_than_equal": "at least {ge:.12g}",
    "int_type": "a whole number",
    "less_than_equal": "at most {le:.12g}",
    "missing": "a lowest and a highest height",
    "string_pattern_mismatch": "auto, cpu, cuda, cuda:0, mps",
    "string_too_short": "a text that is not empty",
    "string_type": "a text",
    "too_long": "a lowest and a highest height",
    "tuple_type": "a list",
}
"""What pydantic finds wrong, as the end of a sentence that begins with "must be"."""


def _tuple_of_list(value: Any) -> Any:
    # JSON and TOML know lists only; sets stay out, as their order differs between processes.
    return tuple(value) if isinstance(value, list) else value


def _in_order(filters: tuple[Filter, ...]) -> tuple[Filter, ...]:
    # The order given means nothing, so settings that mean the same are equal.
    return tuple(name for name in get_args(Filter) if name in filters)


def _seconds(value: Any, info: ValidationInfo) -> Any:
    """The seconds of a text such as 90s, 15m, 2h or 1h30m; anything but a text as it is."""
    if not isinstance(value, str):
        return value
    parts = _TIME.fullmatch(value)
    if parts is None or not any(parts.groups()):
        raise InputError(
            f"{info.field_name} must be seconds, or a text such as 90s, 15m, 2h, but got {short_repr(value)}"
        )
    return sum(float(part or 0) * unit for part, unit in zip(parts.groups(), (3600, 60, 1), strict=True))


def _metric_name(value: Any) -> Any:
    # A record of settings holds texts, and a function cannot be found again by its name.
    if callable(value):
        raise InputError(
            f"the setting metric is a name but got {short_repr(value)}: a metric of your own belongs to the task, "
            "as in task.judged_by(evomal.Metric(f, higher_is_better=True))"
        )
    return value


def _cluster(address: str) -> str:
    if address != "auto" and not re.fullmatch(r"[^\s/]+:[0-9]{1,5}", address):
        raise InputError(f"address must be auto or HOST:PORT but got {short_repr(address)}")
    return address


_Count = Annotated[int, Field(ge=1, le=10**9)]
_Share = Annotated[float, Field(ge=0, le=1)]
_Positive = Annotated[float, Field(gt=0)]
_NotNegative = Annotated[float, Field(ge=0)]
_Height = Annotated[int, Field(ge=0, le=_HIGHEST_START)]
_Text = Annotated[str, Field(min_length=1)]
_Time = Annotated[_Positive, BeforeValidator(_seconds)]
_Filters = Annotated[tuple[Filter, ...], BeforeValidator(_tuple_of_list), AfterValidator(_in_order)]


class SearchSettings(BaseModel):
    """Everything a search can be told besides its task, method and seed; the defaults are the paper's.

    Values are taken as they are meant: a text is no number, 1 is not true. One that breaks a rule is an InputError.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    population: _Count = 25
    generations: _Count = 50
    tournament: _Count = 4
    crossover: _Share = 0.7
    mutation: _Share = 0.25
    elitism: _Share = 0.05
    """Share of the population, rounded, at least one candidate."""
    max_height: Annotated[int, Field(ge=1, le=_HIGHEST_TREE)] = 10
    initial_height: Annotated[tuple[_Height, _Height], BeforeValidator(_tuple_of_list)] = (2, 4)
    parsimony: _NotNegative = 0.0
    """Added to the fitness for every node when parents are chosen."""

    meta_steps: _Count = 250
    meta_lr: _Positive = 1e-3
    inner_steps: _Count = 1

    training_steps: _Count = 500
    optimizer: Literal["sgd", "adam", "adamw"] = "sgd"
    lr: _Positive | None = None
    """This and the next four: None is the task's own."""
    momentum: _NotNegative | None = None
    nesterov: bool | None = None
    weight_decay: _NotNegative | None = None
    batch_size: _Count | None = None

    filter_steps: _Count = 1000
    filter_samples: _Count = 100
    filters: _Filters = get_args(Filter)
    activation: Literal["identity", "softplus"] = "identity"
    metric: Annotated[_Text | None, BeforeValidator(_metric_name)] = None
    """What fitness is measured by; None is the task's own."""
    seed_with: Annotated[tuple[_Text, ...], BeforeValidator(_tuple_of_list)] = ()
    """Losses the first generation begins with: names, or loss files."""
    finalists: Annotated[int, Field(ge=0, le=10**9)] = 0
    """Best distinct candidates that are trained again with fresh seeds, beside the rivals, before the one of least mean
    is called the best; 0 is the paper's: the best is the least of one training each."""
    final_seeds: _Count = 3
    """Fresh seeds of each finalist and rival."""
    final_steps: _Count | None = None
    """Training steps of the comparison after the search; None: those of the task's recipe."""
    milestones: Annotated[tuple[_Count, ...], BeforeValidator(_tuple_of_list)] | None = None
    """Steps of the comparison's trainings at which the learning rate is divided by ten. None: those of the task's
    recipe, at the same fractions of `final_steps`. The trainings inside a search are not affected."""

    device: Annotated[str, Field(pattern=r"^(auto|(cpu|cuda|mps)(:[0-9]{1,3})?)$")] = "auto"
    precision: Literal["float32", "tf32", "bfloat16"] = "float32"
    channels_last: bool = False
    population_mode: Literal["auto", "stacked", "looped"] = "auto"
    chunk: _Count | None = None
    threads: _Count | None = None
    """Of each process that computes. None is as many as there are, and one for a worker of Ray's."""
    deterministic: bool = False

    executor: Literal["local", "ray"] = "local"
    address: Annotated[str, AfterValidator(_cluster)] | None = None
    """This and the next four are for `ray`. A cluster's address, or `auto`; None starts one on this machine."""
    workers: _Count | None = None
    """None is as many as the cluster has room for."""
    gpus_per_worker: _NotNegative | None = None
    """A part such as 0.5 is shared. None is one where the cluster has GPUs, unless the device is cpu."""
    worker_timeout: _Time | None = None
    """Seconds a candidate may take in one stage before its worker is given up; also given as a text."""
    retries: Annotated[int, Field(ge=0, le=100)] = 2
    """How often a candidate is tried again whose worker was lost."""

    max_time: _Time | None = None
    """Seconds after which no generation is begun, though the final still is; also given as a text: 90s, 15m, 2h."""
    max_evaluations: _Count | None = None
    patience: _Count | None = None
    """Generations without a better candidate after which the search ends."""

    def __init__(self, /, **values: Any) -> None:
        try:
            super().__init__(**values)
        except ValidationError as error:
            raise _input_error(error) from None

    def __repr__(self) -> str:
        fields = type(self).model_fields
        changed = {name: value for name, value in self if value != fields[name].default}
        return f"SearchSettings({', '.join(f'{name}={value!r}' for name, value in changed.items())})"

    __str__ = __repr__

    def __setattr__(self, name: str, value: Any) -> None:
        raise InputError(f"settings stay as they are, but {name} was to be set: with_changes makes others")

    @model_validator(mode="before")
    @classmethod
    def _one_thread_a_worker(cls, values: Any) -> Any:
        # A number, so that the record says what was computed with, and the same search can go on elsewhere.
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
        low, high = self.initial_height
        if low > high:
            raise InputError(f"initial_height must go from the lower height to the higher but got {low} to {high}")
        if high > self.max_height:
            raise InputError(f"initial_height must be at most max_height = {self.max_height} but got {high}")
        return self

    @classmethod
    def preset(cls, name: str, /, **changes: Any) -> Self:
        """The settings of that name, `quick` or `paper`, with changes."""
        return cls(**{**PRESETS[one_of("preset", name, PRESETS)], **changes})

    @classmethod
    def given(cls, settings: Self | None, preset: str, changes: Mapping[str, Any]) -> Self:
        """These settings, or the preset with changes where there are none: what functions take that have all three."""
        if settings is None:
            return cls.preset(preset, **changes)
        if changes:
            raise InputError(f"settings are given already, so they cannot be changed by {', '.join(changes)}")
        return settings

    @classmethod
    def from_file(cls, path: str | os.PathLike[str], *, preset: str | None = None) -> Self:
        """The settings of a TOML file over a preset: the one given here, or that of its key `preset`, or `quick`."""
        given = None if preset is None else cls.preset(preset)  # not the file's fault, and so outside the try
        try:
            values = _document(Path(path))
            own = values.pop("preset", _DEFAULT_PRESET)
            return (cls.preset(own) if given is None else given).with_changes(**values)
        except InputError as error:
            raise InputError(f"{path}: {error}") from None

    def with_changes(self, /, **changes: Any) -> Self:
        """These settings with other values for some; all rules are checked again."""
        return type(self)(**{**dict(self), **changes})

    def with_texts(self, texts: Iterable[str]) -> Self:
        """The same with changes written as `key=value`; lists by commas, `none` for what may be left open."""
        changes: dict[str, Any] = {}
        for text in texts:
            key, equals, value = (part.strip() for part in text.partition("="))
            if not (key and equals):
                raise InputError(f"a setting must be given as key=value but got {short_repr(text)}")
            field = type(self).model_fields.get(key)
            changes[key] = value if field is None else _read(value, field.annotation)
        return self.with_changes(**changes)

    def recipe_changes(self) -> dict[str, Any]:
        """Those of the training recipe's settings that are given and replace the task's own."""
        return {name: value for name in _RECIPE if (value := getattr(self, name)) is not None}


def _read(text: str, annotation: Any) -> Any:
    """The text as the type would have it; where it cannot be, the text itself, and validation says what is wrong."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _read(text, arguments[0])
    if origin in (Union, UnionType):
        (given,) = (argument for argument in arguments if argument is not NoneType)
        return None if text.lower() == "none" else _read(text, given)
    if origin is tuple:
        parts = [] if text.lower() in ("", "none") else text.split(",")
        return tuple(_read(part.strip(), arguments[0]) for part in parts)
    if annotation is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if annotation in (int, float):
        with suppress(ValueError):
            return annotation(text)
    return text


def _document(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_bytes().decode())
    except UnicodeDecodeError as error:
        raise InputError(f"is not a TOML text file: byte {error.start} is not UTF-8") from None
    except tomllib.TOMLDecodeError as error:
        raise InputError(f"is not a TOML file: {str(error)[:1].lower()}{str(error)[1:]}") from None
    except RecursionError:
        raise InputError("is not a settings file: its brackets are nested too deeply") from None
    except (OSError, ValueError) as error:  # also a name no file can have, or a number too long for Python to convert
        raise InputError(f"cannot be read: {getattr(error, 'strerror', None) or error}") from None


def preset_of_file(path: str | os.PathLike[str]) -> str:
    """The preset that a TOML file of settings names, or `quick`."""
    return str(_document(Path(path)).get("preset", _DEFAULT_PRESET))


def _input_error(error: ValidationError) -> InputError:
    """The first thing pydantic found wrong, as one sentence: the key, the rule, what was received."""
    first = error.errors(include_url=False)[0]
    kind, context = first["type"], first.get("ctx", {})
    if kind == "value_error":
        return InputError(str(context["error"]))
    key = str(first["loc"][0])
    if kind == "extra_forbidden":
        return unknown_name("setting", key, SearchSettings.model_fields)
    if kind == "literal_error":
        rule = _choice(context["expected"], several=len(first["loc"]) > 1)
    elif kind in _RULES:
        rule = _RULES[kind].format(**context)
    else:
        rule = first["msg"].removeprefix("Input should be ")
    return InputError(f"{key} must be {rule} but got {short_repr(first['input'])}")


def _choice(expected: str, *, several: bool) -> str:
    """Pydantic's "'a', 'b' or 'c'" in this project's words."""
    names = expected.replace(" or ", ", ").replace("'", "")
    if several:
        return f"some of {names}"
    return f"one of {names}" if ", " in names else names
