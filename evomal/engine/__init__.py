"""Training: one model with one loss."""

from evomal.engine.single_training import Score, train

__all__ = ["Score", "train"]
