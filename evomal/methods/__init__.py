"""Methods: the paper's compositions of representation, strategy, filters and weight optimisation."""

from evomal.methods.catalogue import METHODS, method_named
from evomal.methods.filters import FILTERS, FilteringJudge
from evomal.methods.judging import Executor, Failure, Judge, Raised, Stage
from evomal.methods.learned_losses import learned_loss, readable
from evomal.methods.method import Method, SearchContext, Workload

__all__ = [
    "FILTERS",
    "METHODS",
    "Executor",
    "Failure",
    "FilteringJudge",
    "Judge",
    "Method",
    "Raised",
    "SearchContext",
    "Stage",
    "Workload",
    "learned_loss",
    "method_named",
    "readable",
]
