"""Methods: strategies that propose candidates, evaluators that give them a fitness, and the paper's six methods."""

from evomal.methods.candidates import Candidate, State, best_of, front_of, genome_from, genome_text, trained
from evomal.methods.catalogue import METHODS, learned_loss, method_named, readable
from evomal.methods.evaluation import Evaluator, Executor, Failure, Raised, SearchContext, Stage
from evomal.methods.filters import FILTERS
from evomal.methods.strategy import Method

__all__ = [
    "FILTERS",
    "METHODS",
    "Candidate",
    "Evaluator",
    "Executor",
    "Failure",
    "Method",
    "Raised",
    "SearchContext",
    "Stage",
    "State",
    "best_of",
    "front_of",
    "genome_from",
    "genome_text",
    "learned_loss",
    "method_named",
    "readable",
    "trained",
]
