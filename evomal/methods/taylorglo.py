"""TaylorGLO: CMA-ES over the parameters of a Taylor polynomial, without filters (Gonzalez and Miikkulainen, 2021)."""

from collections.abc import Sequence
from typing import Any, cast

from evomal.engine.engine import Report
from evomal.expression import Expression
from evomal.losses.taylor import as_tree
from evomal.methods.executing import Executor, Stage
from evomal.methods.judging import Case, Judge, Learned, concluded
from evomal.methods.method import Brief, Method, Workload
from evomal.strategies import CmaSearch, Outcome, Proposal


class _PolynomialJudge(Judge):
    """Trains with every polynomial that is proposed."""

    def __init__(self, _: Brief, executor: Executor) -> None:
        super().__init__(executor)

    def _judged(self, proposals: Sequence[Proposal], generation: int, report: Report | None) -> list[Outcome]:
        cases = [Case(proposal, []) for proposal in proposals]
        self._trained(cases, report)
        return concluded(cases)

    def _training(self, losses: Sequence[Learned]) -> tuple[Stage, list[Sequence[Any]]]:
        # A polynomial is an expression with weights, and those the engine trains with together.
        trees, weights = zip(*(as_tree(cast(tuple[float, ...], theta)) for theta, _ in losses), strict=True)
        return "evaluate", [trees, weights]


def _covariance_adapted(brief: Brief, _: Sequence[Expression]) -> CmaSearch:
    settings = brief.settings
    return CmaSearch(seed=brief.seed, population=settings.population, generations=settings.generations)


TAYLORGLO = Method(
    "taylorglo", "evolves the parameters of a polynomial", _covariance_adapted, _PolynomialJudge,
    Workload({"evaluate": 1.0}), of_expressions=False,
)  # fmt: skip
