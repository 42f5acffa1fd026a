"""The built-in models: the paper's eleven networks, by name, for any input shape and number of outputs."""

from evomal.tasks.models.base import ZooModel
from evomal.tasks.models.catalogue import MODELS, NamedModel, make_model

__all__ = ["MODELS", "NamedModel", "ZooModel", "make_model"]
