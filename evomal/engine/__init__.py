"""Training: one model with one loss."""

from evomal.engine.scores import Score
from evomal.engine.single_training import TrainingSettings, train

__all__ = ["Score", "TrainingSettings", "train"]
