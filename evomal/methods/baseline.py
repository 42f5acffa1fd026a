"""The baseline: the task's own loss in an ordinary training loop, nothing learned (EvoMAL, section 4.1)."""

from collections.abc import Sequence

from evomal.engine.engine import Report
from evomal.expression import Expression
from evomal.losses.catalogue import named_loss
from evomal.methods.executing import Executor
from evomal.methods.judging import Case, Judge, concluded
from evomal.methods.method import Brief, Method, Workload
from evomal.strategies import FixedForm, Outcome, Proposal

TASK_LOSSES = {"classification": "ce", "multilabel": "ce", "regression": "mse"}
"""What a task is judged by while a loss is learned for it."""


class _TrainingJudge(Judge):
    """Trains with the losses of those names."""

    def __init__(self, brief: Brief, executor: Executor) -> None:
        super().__init__(executor)
        self._kind = brief.kind

    def _judged(self, proposals: Sequence[Proposal], report: Report | None) -> list[Outcome]:
        cases = [Case(proposal, []) for proposal in proposals]
        losses = [named_loss(str(proposal.genome), kind=self._kind) for proposal in proposals]
        for case, fitness in self._worked_on("evaluate_losses", cases, losses, report=report):
            case.measured(fitness)
        return concluded(cases)


def _task_loss(brief: Brief, _: Sequence[Expression]) -> FixedForm:
    return FixedForm(TASK_LOSSES[brief.kind])


BASELINE = Method(
    "baseline", "trains with the task's own loss and learns nothing", _task_loss, _TrainingJudge,
    Workload({"evaluate_losses": None}), of_expressions=False,
)  # fmt: skip
