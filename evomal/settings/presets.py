"""The presets: what each of them changes of the defaults, which are the paper's (EvoMAL, sections 3 and 4)."""

from collections.abc import Mapping
from typing import Any, Literal, get_args

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
"""What each preset changes of the defaults, which are the paper's. For a small model, `quick` takes one to two
minutes on two cores, and `thorough` about two minutes on a large GPU."""

DEFAULT_PRESET = "quick"
