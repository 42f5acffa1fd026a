"""Training: one model with one loss, or a population of expressions as one piece of work."""

from evomal.engine.engine import Engine
from evomal.engine.engine_settings import EngineSettings
from evomal.engine.scores import Fitness, Score
from evomal.engine.single_training import TrainingSettings, train
from evomal.engine.weight_optimisation import Optimised

__all__ = ["Engine", "EngineSettings", "Fitness", "Optimised", "Score", "TrainingSettings", "train"]
