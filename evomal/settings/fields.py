"""Every setting of a search with its rule, its default and its description; and the changes that presets make.

The defaults are the paper's (EvoMAL, sections 3 and 4).
"""

import re
from collections.abc import Mapping
from typing import Annotated, Any, Literal, get_args

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationInfo

from evomal.errors import InputError
from evomal.text import short_repr

Filter = Literal["symbolic", "admissible", "dead", "rejection", "gradient"]
"""In the order in which they are applied."""

PAPER_FILTERS: tuple[Filter, ...] = ("symbolic", "dead", "rejection", "gradient")
"""The filters of the paper, and the one for dead gradients."""

_HIGHEST_TREE = 32  # a crossover can double it before the cap is applied, and no tree may be higher than 64
_HIGHEST_START = 12  # a full tree of this height is the largest that a tree may be
_NUMBER = r"([0-9]+(?:\.[0-9]+)?)"
_TIME = re.compile(rf"(?:{_NUMBER}h)?(?:{_NUMBER}m)?(?:{_NUMBER}s)?")
AUTO_SPACE = "auto"
"""The name in `space` that stands for the space that fits the task."""


def _tuple_of_list(value: Any) -> Any:
    # JSON and TOML have lists only; sets are not accepted, as their order differs between processes.
    return tuple(value) if isinstance(value, list) else value


def _names(value: Any) -> Any:
    return (value,) if isinstance(value, str) else _tuple_of_list(value)


def _in_order(filters: tuple[Filter, ...]) -> tuple[Filter, ...]:
    # The given order has no meaning, and settings with the same meaning must be equal.
    return tuple(name for name in get_args(Filter) if name in filters)


def _seconds(value: Any, info: ValidationInfo) -> Any:
    """The seconds of a text such as 90s, 15m, 2h or 1h30m; anything but a text as it is."""
    if not isinstance(value, str):
        return value
    parts = _TIME.fullmatch(value)
    if parts is None or not any(parts.groups()):
        raise InputError(
            f"{info.field_name} must be seconds, or a string such as 90s, 15m, 2h, but got {short_repr(value)}"
        )
    return sum(float(part or 0) * unit for part, unit in zip(parts.groups(), (3600, 60, 1), strict=True))


def _named(value: Any, info: ValidationInfo) -> Any:
    # A record of settings holds texts, and a function cannot be found again by its name.
    if callable(value):
        name = info.field_name
        own = f"a function of your own belongs to the task, as in evomal.Recipe({name}=…)"
        if name == "metric":
            example = "task.judged_by(evomal.Metric(f, higher_is_better=True))"
            own = f"a metric of your own belongs to the task, as in {example}"
        raise InputError(f"the setting {name} is a name but got {short_repr(value)}: {own}")
    return value


def _cluster(address: str) -> str:
    if address != "auto" and not re.fullmatch(r"[^\s/]+:[0-9]{1,5}", address):
        raise InputError(f"address must be auto or HOST:PORT but got {short_repr(address)}")
    return address


_Count = Annotated[int, Field(ge=1, le=10**9)]
"""A number of steps or generations. They take time but no memory, and a search may be meant to end by its budget."""
_Many = Annotated[int, Field(ge=1, le=100_000)]
"""A number of candidates or samples that are in memory at once."""
_Few = Annotated[int, Field(ge=1, le=1_024)]
"""A number of seeds, threads, workers, or steps that are differentiated through together."""
_Share = Annotated[float, Field(ge=0, le=1)]
_PositiveShare = Annotated[float, Field(gt=0, le=1)]
_Positive = Annotated[float, Field(gt=0)]
_NotNegative = Annotated[float, Field(ge=0)]
_Height = Annotated[int, Field(ge=0, le=_HIGHEST_START)]
_Text = Annotated[str, Field(min_length=1)]
_Named = Annotated[_Text | None, BeforeValidator(_named)]
_Time = Annotated[_Positive, BeforeValidator(_seconds)]
_Filters = Annotated[tuple[Filter, ...], BeforeValidator(_tuple_of_list), AfterValidator(_in_order)]


class SettingFields(BaseModel):
    """The fields of `SearchSettings`; the defaults are the paper's."""

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
        "logp, blogp, margin, prior), auto (the paper's, and blogp where classes are of very unequal size), or a list "
        "of these names and of single operators and terminals.",
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
        description="Number of proposals per place of the population in later generations; the first ones that pass "
        "all filters are trained. For several islands.",
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
    optimizer: _Named = Field(
        None,
        description="Optimizer of the trainings: sgd, adam, adamw or another of torch, with options as in "
        "adamw:beta2=0.98; by default the task's.",
    )
    schedule: _Named = Field(
        None,
        description="Schedule of the learning rate: step (see milestones), constant, linear, cosine or one-cycle; by "
        "default the task's.",
    )
    warmup: Annotated[float, Field(ge=0, lt=1)] | None = Field(
        None, description="Share of a training in which the learning rate rises to its value; by default the task's."
    )
    clip: _Positive | None = Field(
        None, description="Norm to which the gradients of a training are clipped; by default the task's."
    )
    lr: _Positive | None = Field(None, description="Learning rate of the trainings; by default the task's.")
    momentum: _NotNegative | None = Field(None, description="Momentum of the trainings; by default the task's.")
    nesterov: bool | None = Field(None, description="Whether the momentum is Nesterov's; by default as in the task.")
    weight_decay: _NotNegative | None = Field(None, description="Weight decay of the trainings; by default the task's.")
    batch_size: _Count | None = Field(None, description="Samples per training step; by default the task's.")

    tried_rates: Annotated[int, Field(ge=0, le=31)] = Field(
        0,
        description="Number of learning rates at which a candidate is trained; its fitness is that of the best. 0: the "
        "task's learning rate alone, as in the paper.",
    )
    scaled_to: Literal["baseline", "best"] = Field(
        "baseline",
        description="Known loss to whose gradient at the start every expression is scaled, and around whose learning "
        "rate rates are tried: the task's own loss at its own rate, or the loss that is best before the search, at its "
        "best rate. With weight decay, the scale of a loss matters. Without tried_rates nothing is scaled.",
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
    filter_samples: _Many = Field(100, description="Samples on which the filters evaluate a candidate.")
    filters: _Filters = Field(PAPER_FILTERS, description="Filters that are applied; any of them can be left out.")
    activation: Literal["identity", "softplus"] = Field(
        "identity", description="Function that is applied to the output of an expression."
    )
    metric: _Named = Field(None, description="Metric that fitness is made of; by default the task's.")
    across_tasks: Literal["rank", "worst", "mean"] | None = Field(
        None,
        description="How fitness is made of the costs on several tasks. worst: the relative change from the "
        "baseline's cost on the task where that is worst; rank: the mean over tasks of the rank among the known "
        "losses, interpolated; mean: the mean of the costs, which must be of one metric. By default worst.",
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
    final_share: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0,
        description="Share of the validation rows that only the final is judged on: the search itself never sees them. "
        "It is taken from tasks with at least 2000 validation rows in memory, unless splits are drawn anew (resplit). "
        "0: none, as in the paper.",
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
        "to be shared, divided among the processes of jobs; one for a Ray worker.",
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
        description="Time that a candidate may take in one stage before its Ray worker is given up: seconds, or a "
        "string such as 15m.",
    )
    retries: Annotated[int, Field(ge=0, le=100)] = Field(
        2, description="How often a candidate is computed again after its Ray worker was lost."
    )

    max_time: _Time | None = Field(
        None,
        description="Time after which no further generation begins: seconds, or a string such as 90s, 15m or 2h; the "
        "final takes place in any case.",
    )
    max_evaluations: _Count | None = Field(
        None, description="Number of trained candidates after which no further generation begins."
    )
    patience: _Count | None = Field(
        None, description="Number of generations without a better candidate after which the search ends."
    )


_BY_RUNGS: Mapping[str, Any] = {
    "space": (AUTO_SPACE,),
    "filters": get_args(Filter),
    "filter_steps": 250,
    "meta_steps": 100,
    "surplus": 6.0,
    "scaled_to": "best",
    "tuned_rung": None,
    "resplit": True,
    "final_seeds": 5,
    "final_steps": 2000,
    "final_share": 0.5,
}
PRESETS: Mapping[str, Mapping[str, Any]] = {
    "quick": {
        **_BY_RUNGS,
        "population": 32,
        "generations": 8,
        "islands": 4,
        "first_trees": 4000,
        "training_steps": 500,
        "tried_rates": 5,
        "rungs": (0.2, 1.0),
        "rung_seeds": (1, 2),
        "finalists": 6,
    },
    "thorough": {
        **_BY_RUNGS,
        "population": 128,
        "generations": 20,
        "islands": 8,
        "first_trees": 8000,
        "training_steps": 1000,
        "tried_rates": 5,
        "rungs": (0.1, 1.0),
        "rung_seeds": (2, 4),
        "finalists": 20,
        "final_seeds": 10,
    },
    "paper": {},
}
"""The changes that each preset makes to the defaults, which are the paper's. For a small model, `quick` takes one to
two minutes on two cores, and `thorough` about two minutes on a large GPU."""

DEFAULT_PRESET = "quick"
