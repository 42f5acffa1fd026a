"""The built-in models: the paper's eleven networks, by name, for any input shape and number of outputs."""

from evomal.tasks.models.base import BuiltInModel
from evomal.tasks.models.catalogue import MODELS, NamedModel, make_model

__all__ = ["MODELS", "BuiltInModel", "NamedModel", "make_model"]
