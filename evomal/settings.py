"""The settings of a search: the paper's values (EvoMAL, sections 3 and 4), presets, and settings from files and texts.

What depends on the task or the device, such as whether there is a GPU, is checked where it is used.
"""

import itertools
import os
import re
import tomllib
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
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

from evomal.checks import one_of, path_to, unknown_name
from evomal.errors import InputError
from evomal.files import read_foreign
from evomal.text import short_repr

Filter = Literal["symbolic", "admissible", "dead", "rejection", "gradient"]
"""In the order in which they are applied."""

PAPER_FILTERS: tuple[Filter, ...] = ("symbolic", "dead", "rejection", "gradient")
"""The paper's filters and that for dead gradients."""

_BY_RUNGS: Mapping[str, Any] = {
    "filters": get_args(Filter),
    "filter_steps": 250,
    "meta_steps": 100,
    "surplus": 6.0,
    "tuned_rung": None,
    "resplit": True,
    "final_seeds": 5,
    "final_steps": 2000,
}
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "quick": {
        **_BY_RUNGS,
        "population": 32,
        "generations": 8,
        "islands": 4,
        "first_trees": 4000,
        "training_steps": 400,
        "tried_rates": 3,
        "rungs": (0.25, 1.0),
        "rung_seeds": (1, 2),
        "finalists": 6,
    },
    "thorough": {
        **_BY_RUNGS,
        "population": 128,
        "generations": 20,
        "islands": 8,
        "first_trees": 8000,
        "training_steps": 2000,
        "tried_rates": 5,
        "rungs": (0.125, 0.5, 1.0),
        "rung_seeds": (1, 2, 4),
        "finalists": 20,
        "final_seeds": 10,
    },
    "paper": {},
}
"""What each preset changes of the defaults, which are the paper's. For a small model, `quick` takes about a minute on
two cores, and `thorough` about two minutes on a large GPU."""

WORKPLACE = ("executor", "address", "workers", "gpus_per_worker", "worker_timeout", "retries")
"""Settings that say where candidates are computed, which changes no number: they may differ when a run is resumed."""

_DEFAULT_PRESET = "quick"
_MAX_FILE_BYTES = 1024 * 1024
_RECIPE = ("lr", "momentum", "nesterov", "weight_decay", "batch_size")
_ONE_ISLAND = ("crossover", "mutation", "elitism", "parsimony")
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


def _names(value: Any) -> Any:
    return (value,) if isinstance(value, str) else _tuple_of_list(value)


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
"""Of steps or generations, which take time and no memory: a search may be meant to end by its budget."""
_Many = Annotated[int, Field(ge=1, le=100_000)]
"""Of candidates or samples that are in memory at once."""
_Few = Annotated[int, Field(ge=1, le=1_024)]
"""Of steps that are differentiated through together, of seeds, threads or workers."""
_Share = Annotated[float, Field(ge=0, le=1)]
_PositiveShare = Annotated[float, Field(gt=0, le=1)]
_Positive = Annotated[float, Field(gt=0)]
_NotNegative = Annotated[float, Field(ge=0)]
_Height = Annotated[int, Field(ge=0, le=_HIGHEST_START)]
_Text = Annotated[str, Field(min_length=1)]
_Time = Annotated[_Positive, BeforeValidator(_seconds)]
_Filters = Annotated[tuple[Filter, ...], BeforeValidator(_tuple_of_list), AfterValidator(_in_order)]


class SearchSettings(BaseModel):
    """The settings of a search besides its task, method and seed; the defaults are the paper's.

    Settings are validated here, once; everything that is given a `SearchSettings` trusts it. Types are strict: a text
    is not a number, and 1 is not true. `describe` lists all settings with their descriptions.

    Raises:
        InputError: A value breaks a rule; the sentence names the setting, the rule and the value.

    Example:
        >>> SearchSettings.preset("quick", population=10).generations
        8
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True, allow_inf_nan=False)

    population: _Many = Field(25, description="Number of candidates per generation.")
    generations: _Count = Field(50, description="Number of generations. May be changed when a run is resumed.")
    tournament: _Many = Field(4, description="Number of candidates that are drawn for each tournament.")
    crossover: _Share = Field(
        0.7,
        description="Share of children that are made by crossover. For one island: several have shares of their own.",
    )
    mutation: _Share = Field(
        0.25, description="Share of children that are made by mutation; the rest are copies. For one island."
    )
    elitism: _Share = Field(
        0.05,
        description="Share of the population that is kept unchanged, rounded, at least one candidate. For one island: "
        "several keep their best, however many children there are.",
    )
    max_height: Annotated[int, Field(ge=1, le=_HIGHEST_TREE)] = Field(10, description="Maximum height of a tree.")
    initial_height: Annotated[tuple[_Height, _Height], BeforeValidator(_tuple_of_list)] = Field(
        (2, 4), description="Lowest and highest height of the trees of the first generation."
    )
    space: Annotated[tuple[_Text, ...], BeforeValidator(_names)] = Field(
        ("paper",),
        description="Operators and terminals of the trees: paper, extended (also exp, pow, t, and for classification "
        "logp, blogp, margin, prior), or a list of these names and of single operators and terminals.",
    )
    parsimony: _NotNegative = Field(
        0.0, description="Added to the fitness for every node of a tree when parents are selected. For one island."
    )

    islands: _Few = Field(
        1,
        description="Number of islands, among which the population is divided: each breeds by itself. 1: one "
        "population with generational replacement, as in the paper. For evomal and gp-lfl.",
    )
    first_trees: _Many | None = Field(
        None,
        description="Number of random trees from which the first generation is taken, at least the population; by "
        "default the population. For several islands.",
    )
    surplus: Annotated[float, Field(ge=1, le=100)] = Field(
        1.0,
        description="Proposals for each place of the population in later generations; those that pass all filters "
        "first are trained. For several islands.",
    )
    migration: _Count = Field(
        5, description="Number of generations after which the best of every island goes to the next island."
    )
    max_age: _Count = Field(
        10,
        description="Number of generations after which a member of an island, other than its best, makes room for a "
        "younger one.",
    )

    meta_steps: _Count = Field(250, description="Meta steps, which optimise the weights of each candidate.")
    meta_lr: _Positive = Field(1e-3, description="Learning rate of the meta steps.")
    inner_steps: _Few = Field(1, description="Training steps through which each meta step differentiates.")

    training_steps: _Count = Field(500, description="Training steps that measure the fitness of a candidate.")
    optimizer: Literal["sgd", "adam", "adamw"] = Field("sgd", description="Optimiser of the trainings.")
    lr: _Positive | None = Field(None, description="Learning rate of the trainings; by default the task's.")
    momentum: _NotNegative | None = Field(None, description="Momentum of the trainings; by default the task's.")
    nesterov: bool | None = Field(None, description="Whether the momentum is Nesterov's; by default as in the task.")
    weight_decay: _NotNegative | None = Field(None, description="Weight decay of the trainings; by default the task's.")
    batch_size: _Count | None = Field(None, description="Samples per training step; by default the task's.")

    tried_rates: Annotated[int, Field(ge=0, le=31)] = Field(
        0,
        description="Number of learning rates at which a candidate is trained, around the one at which its gradient "
        "matches the baseline's; its fitness is that of the best. 0: the task's learning rate alone, as in the paper.",
    )
    rungs: Annotated[tuple[_PositiveShare, ...], BeforeValidator(_tuple_of_list)] = Field(
        (1.0,),
        description="Rungs, as shares of training_steps: all candidates are trained on the first rung, the best of "
        "them on the next, with fresh seeds. Several rungs need tried_rates.",
    )
    rung_seeds: Annotated[tuple[_Few, ...], BeforeValidator(_tuple_of_list)] = Field(
        (1,), description="Number of seeds on each rung; the last number counts for further rungs."
    )
    rung_share: _PositiveShare = Field(
        0.33, description="Share of the candidates of a rung that are trained on the next."
    )
    tuned_rung: Annotated[int, Field(ge=1, le=100)] | None = Field(
        1,
        description="Rung before which the weights of its candidates are optimised; 1: those of all candidates, as in "
        "the paper; none: no weights.",
    )
    resplit: bool = Field(
        False,
        description="Whether every seed of a rung draws its own split of training and validation rows, on tasks where "
        "both come from one distribution.",
    )

    filter_steps: _Count = Field(1000, description="Steps in which the rejection filter moves the untrained outputs.")
    filter_samples: _Many = Field(100, description="Samples on which the filters look at a candidate.")
    filters: _Filters = Field(PAPER_FILTERS, description="Filters that are applied; any of them can be left out.")
    activation: Literal["identity", "softplus"] = Field(
        "identity", description="Function that is applied to the output of an expression."
    )
    metric: Annotated[_Text | None, BeforeValidator(_metric_name)] = Field(
        None, description="Metric that fitness is made of; by default the task's."
    )
    seed_with: Annotated[tuple[_Text, ...], BeforeValidator(_tuple_of_list)] = Field(
        (), description="Losses that the first generation begins with: names or loss files, comma-separated."
    )
    finalists: Annotated[int, Field(ge=0, le=100_000)] = Field(
        0,
        description="Number of best distinct candidates that are trained again with fresh seeds, beside the rivals; "
        "the one with the lowest mean is the result. 0: the best single training decides, as in the paper.",
    )
    final_seeds: _Few = Field(3, description="Number of fresh seeds for each finalist and rival.")
    final_steps: _Count | None = Field(
        None, description="Training steps of comparisons; by default those of the task's recipe."
    )
    milestones: Annotated[tuple[_Count, ...], BeforeValidator(_tuple_of_list)] | None = Field(
        None,
        description="Steps at which the learning rate of a comparison's trainings is divided by ten; by default those "
        "of the task's recipe, at the same fractions of final_steps. Does not affect the trainings of a search.",
    )

    device: Annotated[str, Field(pattern=r"^(auto|(cpu|cuda|mps)(:[0-9]{1,3})?)$")] = Field(
        "auto", description="Device to compute on: auto, cpu, cuda, cuda:0 or mps."
    )
    precision: Literal["float32", "tf32", "bfloat16"] = Field("float32", description="Precision of the trainings.")
    channels_last: bool = Field(False, description="Whether images use the channels-last memory format.")
    population_mode: Literal["auto", "stacked", "looped"] = Field(
        "auto",
        description="Whether candidates are trained together or one after the other; auto: chosen by a fixed rule.",
    )
    chunk: _Many | None = Field(
        None, description="Candidates that are trained together; by default chosen by a fixed rule."
    )
    threads: _Few | None = Field(
        None,
        description="Threads of each computing process; by default one, or all where a training step is large enough "
        "to be shared; one for a Ray worker.",
    )
    deterministic: bool = Field(False, description="Whether CUDA uses deterministic algorithms only, which are slower.")

    executor: Literal["local", "ray"] = Field("local", description="Where candidates are computed.")
    address: Annotated[str, AfterValidator(_cluster)] | None = Field(
        None,
        description="Address of a Ray cluster as HOST:PORT, or auto; by default a cluster is started on this machine.",
    )
    workers: _Few | None = Field(
        None, description="Number of Ray workers; by default as many as the cluster has room for."
    )
    gpus_per_worker: _NotNegative | None = Field(
        None,
        description="GPUs of each Ray worker; with 0.5, two workers share one. By default one if the cluster has "
        "GPUs and the device is not cpu.",
    )
    worker_timeout: _Time | None = Field(
        None,
        description="Time that a candidate may take in one stage before its Ray worker is given up: seconds, or a text "
        "such as 15m.",
    )
    retries: Annotated[int, Field(ge=0, le=100)] = Field(
        2, description="How often a candidate is computed again after its Ray worker was lost."
    )

    max_time: _Time | None = Field(
        None,
        description="Time after which no further generation begins: seconds, or a text such as 90s, 15m or 2h; the "
        "final takes place in any case.",
    )
    max_evaluations: _Count | None = Field(
        None, description="Number of trained candidates after which no further generation begins."
    )
    patience: _Count | None = Field(
        None, description="Number of generations without a better candidate after which the search ends."
    )

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
        raise InputError(f"settings cannot be changed, but {name} was assigned: use with_changes")

    @model_validator(mode="before")
    @classmethod
    def _one_thread_per_worker(cls, values: Any) -> Any:
        # A number, so that the record says what was used, and the same search can be resumed elsewhere.
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
        self._check_islands()
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

    def _check_islands(self) -> None:
        for name in _ONE_ISLAND if self.islands > 1 else ():
            if getattr(self, name) != type(self).model_fields[name].default:
                raise InputError(f"{name} is for one island, but islands is {self.islands}")

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
        values = _document(path_to("path", path))
        try:
            own = values.pop("preset", _DEFAULT_PRESET)
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
        for text in given if isinstance(given, Iterable) else [given]:
            if not isinstance(text, str):
                raise InputError(f"a setting must be given as key=value but got {short_repr(text)}")
            key, equals, value = (part.strip() for part in text.partition("="))
            if not (key and equals):
                raise InputError(f"a setting must be given as key=value but got {short_repr(text)}")
            field = type(self).model_fields.get(key)
            changes[key] = value if field is None else _read(value, field.annotation)
        return self.with_changes(**changes)

    def as_texts(self) -> dict[str, str]:
        """All settings as texts that `with_texts` reads.

        Example:
            >>> SearchSettings(initial_height=(1, 3)).as_texts()["initial_height"]
            '1,3'
        """
        return {name: setting_text(value) for name, value in self}

    def recipe_changes(self) -> dict[str, Any]:
        """The settings of the training recipe that replace the task's own."""
        return {name: value for name in _RECIPE if (value := getattr(self, name)) is not None}


def setting_text(value: Any) -> str:
    """The value of a setting as `with_texts` reads it."""
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return ",".join(map(setting_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


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
            _type_text(field.annotation),
            {preset: changes.get(name, field.default) for preset, changes in PRESETS.items()},
            field.description or "",
        )
        for name, field in SearchSettings.model_fields.items()
    )


def _type_text(annotation: Any) -> str:
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return _type_text(arguments[0])
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin in (Union, UnionType):
        return " or ".join("none" if argument is NoneType else _type_text(argument) for argument in arguments)
    if origin is tuple:
        inner = _type_text(arguments[0])
        return inner.replace("one of", "some of") if inner.startswith("one of") else f"list of {inner}s"
    names = {bool: "true or false", int: "whole number", float: "number", str: "text"}
    return names[annotation]


def _read(text: str, annotation: Any) -> Any:
    """The text converted to the type; if that fails the text itself, and validation says what is wrong."""
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
    content = read_foreign(path, limit=_MAX_FILE_BYTES, follow_links=True)
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        reason = f"is not a TOML text file: byte {error.start} is not UTF-8"
    except tomllib.TOMLDecodeError as error:
        reason = f"is not a TOML file: {str(error)[:1].lower()}{str(error)[1:]}"
    except RecursionError:
        reason = "is not a settings file: its brackets are nested too deeply"
    except ValueError as error:  # a number too long for Python to convert
        reason = f"cannot be read: {error}"
    raise InputError(f"{path}: {reason}")


def preset_of_file(path: str | os.PathLike[str]) -> str:
    """The preset that a TOML file of settings names, or `quick`."""
    return str(_document(Path(path)).get("preset", _DEFAULT_PRESET))


def _input_error(error: ValidationError) -> InputError:
    """The first error that pydantic found, as one sentence: the key, the rule, the value received."""
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
    """Pydantic's "'a', 'b' or 'c'" as the end of a sentence."""
    names = expected.replace(" or ", ", ").replace("'", "")
    if several:
        return f"some of {names}"
    return f"one of {names}" if ", " in names else names
