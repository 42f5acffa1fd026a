"""Training: one model with one loss, any list of trials, or a population of expressions at once."""

from evomal.engine.engine import Engine
from evomal.engine.full_training import TrainingSettings, train
from evomal.engine.plans import EngineSettings
from evomal.engine.scores import CurvePoint, Fitness, Rung, RungScores, Score, Trial, TrialLoss
from evomal.engine.weight_optimisation import Optimised

__all__ = [
    "CurvePoint", "Engine", "EngineSettings", "Fitness", "Optimised", "Rung", "RungScores", "Score", "TrainingSettings",
    "Trial", "TrialLoss", "train",
]  # fmt: skip
