"""The baseline: the task's own loss in an ordinary training loop, nothing learned (EvoMAL, section 4.1)."""

from collections.abc import Sequence
from typing import Any

from evomal.expression import Expression
from evomal.losses.catalogue import named_loss
from evomal.methods.judging import Case, Executor, Judge, Learned, Stage, concluded
from evomal.methods.method import Method, SearchContext, Workload
from evomal.methods.outcomes import Outcome
from evomal.methods.proposals import Proposal
from evomal.methods.rivals import RIVALS
from evomal.methods.strategy import FixedForm
from evomal.progress import StageStepsDone

TASK_LOSSES = {kind: names[0] for kind, names in RIVALS.items()}
"""What a task is judged by while a loss is learned for it."""


class _TrainingJudge(Judge):
    """Trains with the losses of those names."""

    def __init__(self, context: SearchContext, executor: Executor) -> None:
        super().__init__(executor)
        self._kind = context.kind

    def _judged(self, proposals: Sequence[Proposal], generation: int, report: StageStepsDone | None) -> list[Outcome]:
        cases = [Case(proposal, []) for proposal in proposals]
        self._trained(cases, report)
        return concluded(cases)

    def _training(self, losses: Sequence[Learned]) -> tuple[Stage, list[Sequence[Any]]]:
        return "evaluate_losses", [[named_loss(str(genome), kind=self._kind) for genome, _ in losses]]


def _task_loss(context: SearchContext, _: Sequence[Expression]) -> FixedForm:
    return FixedForm(TASK_LOSSES[context.kind])


BASELINE = Method(
    "baseline", "trains with the task's own loss and learns nothing", _task_loss, _TrainingJudge,
    Workload({"evaluate_losses": None}), of_expressions=False,
)  # fmt: skip
