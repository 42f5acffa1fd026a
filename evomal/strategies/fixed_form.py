"""A loss whose form is fixed: proposed once as it is, or tuned on for as long as it keeps its fitness."""

from evomal.strategies.outcomes import Outcome
from evomal.strategies.proposals import Proposal
from evomal.strategies.strategy import GenerationalStrategy


class FixedForm(GenerationalStrategy):
    """The same form in every generation, from the weights that the one before ended with."""

    def __init__(self, form: str, *, generations: int = 1) -> None:
        super().__init__(population=1, generations=generations)
        self._form = form
        self._weights: tuple[float, ...] = ()
        self._lost = False

    @property
    def finished(self) -> bool:
        """Whether all generations have been told, or one of them failed: what comes after would fail alike."""
        return self._lost or super().finished

    @property
    def ending(self) -> str:
        """That all generations are done, or which one failed."""
        if self._lost and self.generation < self.generations:
            return f"generation {self.generation} has no fitness, and any after it would have none"
        return super().ending

    def _propose(self) -> list[Proposal]:
        return [Proposal(self._form, "continued" if self._weights else "given", weights=self._weights)]

    def _learn(self, proposals: list[Proposal], outcomes: list[Outcome]) -> None:
        (outcome,) = outcomes
        self._weights, self._lost = outcome.weights, not outcome.has_fitness
