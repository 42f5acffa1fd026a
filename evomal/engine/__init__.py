"""Training: one model with one loss, any list of trials, or a population of expressions at once."""

from evomal.engine.engine import Engine
from evomal.engine.engine_settings import EngineSettings
from evomal.engine.full_training import TrainingSettings, train
from evomal.engine.scores import CurvePoint, Fitness, Score
from evomal.engine.trial import Rung, RungScores, Trial
from evomal.engine.weight_optimisation import Optimised

__all__ = [
    "CurvePoint", "Engine", "EngineSettings", "Fitness", "Optimised", "Rung", "RungScores", "Score", "TrainingSettings",
    "Trial", "train",
]  # fmt: skip
