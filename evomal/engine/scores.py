"""What came of a training."""

import math
from dataclasses import dataclass

from evomal.tasks.metrics import Metric


@dataclass(frozen=True)
class CurvePoint:
    """Where training stood after so many steps."""

    step: int
    training_loss: float
    validation: float


@dataclass(frozen=True)
class Score:
    """The task's metric on test and validation, all metrics on test, and the way there."""

    test: float
    validation: float
    metrics: dict[str, float]
    curve: list[CurvePoint]
    seed: int
    steps: int
    outcome: str = "trained"
    """`trained`, or `diverged` with the worst possible values."""
    sentence: str = ""

    @property
    def diverged(self) -> bool:
        return self.outcome == "diverged"


def diverged_score(metric: Metric, curve: list[CurvePoint], *, seed: int, step: int, sentence: str) -> Score:
    """The score of a training that came to nothing at that step."""
    worst = math.inf if metric.lower_is_better else -math.inf
    return Score(worst, worst, {}, curve, seed, step, outcome="diverged", sentence=sentence)
