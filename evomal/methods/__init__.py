"""Methods: the paper's compositions of representation, strategy, filters and weight optimisation."""

from evomal.methods.catalogue import METHODS, method_named
from evomal.methods.judging import FILTERS, Judge
from evomal.methods.method import Method

__all__ = ["FILTERS", "METHODS", "Judge", "Method", "method_named"]
