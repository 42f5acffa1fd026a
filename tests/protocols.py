"""Settings that tests share: the paper's protocol, one training per candidate, as changes of the preset `quick`."""

from evomal.settings import PAPER_FILTERS, setting_text

ONE_TRAINING = {
    "tried_rates": 0, "rungs": (1.0,), "islands": 1, "first_trees": None, "surplus": 1.0, "tuned_rung": 1,
    "resplit": False, "filters": PAPER_FILTERS, "finalists": 10, "final_seeds": 3,
}  # fmt: skip
OPTIONS = tuple(text for key, value in ONE_TRAINING.items() for text in ("--set", f"{key}={setting_text(value)}"))
"""The same for the command line."""

ON_RUNGS = {
    "tried_rates": 2,
    "rungs": (0.5, 1.0),
    "rung_seeds": (1,),
    "islands": 2,
    "first_trees": 40,
    "final_steps": 20,
}
"""A short version of the protocol of `quick`."""
