"""How many neighbouring candidates must stay together so that no bit depends on who works on what."""

import math
from collections.abc import Sequence

from evomal.engine.plans import Plan
from evomal.methods import Stage


def units(plans: Sequence[Plan], device: str) -> dict[Stage, int]:
    """For each stage so many, counted from the first; 0: all.

    Stacked, the last bits depend on how many candidates there are in a chunk, so a worker gets whole chunks, cut where
    one engine alone would cut them. The kernels of the filters work on each candidate by itself on a CPU, which is
    tested; elsewhere they get all, which takes milliseconds.
    """
    optimised = min(plan.meta_chunk for plan in plans) if all(plan.mode == "stacked" for plan in plans) else 1
    trained = math.lcm(*(plan.training_chunk if plan.mode == "stacked" else 1 for plan in plans))
    filtered = 1 if device == "cpu" else 0
    return {
        "optimise": optimised, "evaluate": trained, "gradient_norms": filtered, "gains": filtered,
        "optimise_networks": 1, "evaluate_losses": 1,
    }  # fmt: skip
