"""Strategies: what to try next, asked and told a generation at a time."""

from evomal.strategies.archive import Archive, Candidate
from evomal.strategies.cma import CmaSearch
from evomal.strategies.fixed_form import FixedForm
from evomal.strategies.genetic import GeneticSearch
from evomal.strategies.outcomes import Outcome, State
from evomal.strategies.proposals import Genome, Origin, Proposal
from evomal.strategies.random_search import RandomSearch
from evomal.strategies.strategy import Strategy

__all__ = [
    "Archive",
    "Candidate",
    "CmaSearch",
    "FixedForm",
    "GeneticSearch",
    "Genome",
    "Origin",
    "Outcome",
    "Proposal",
    "RandomSearch",
    "State",
    "Strategy",
]
