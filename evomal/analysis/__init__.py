"""Records turned into the data of figures; nothing here draws."""

from evomal.analysis.loss_properties import Property
from evomal.analysis.shapes import Curve, LossShape, loss_shape

__all__ = ["Curve", "LossShape", "Property", "loss_shape"]
