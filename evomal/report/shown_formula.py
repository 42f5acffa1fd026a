"""The best loss of a task, as people read it."""

from dataclasses import dataclass

from evomal.analysis.best_losses import BestLosses, RankedLoss
from evomal.analysis.chosen_runs import Run
from evomal.report.loss_table import metric_value
from evomal.report.typeset import formula_text, mathml, mathtext, symbols_of

_LONGEST_TYPESET = 240  # characters; longer ones nobody reads but as text


@dataclass(frozen=True)
class ShownFormula:
    """The best loss of a task, as people read it."""

    best: BestLosses
    text: str
    written: str
    symbols: str
    mathml: str | None
    mathtext: str | None
    """For paper."""

    @property
    def row(self) -> RankedLoss:
        """The loss itself."""
        return self.best.rows[0]

    @property
    def sentence(self) -> str:
        """What it came to, and where it was found."""
        row, metric = self.row, self.best.metric
        size = "" if row.size is None else f", size {row.size}"
        return (
            f"Validation {metric_value(row.value, metric)}{size}, "
            f"found in generation {row.generation} by {row.candidate.origin} ({run_name(row.run)})."
        )


def shown_formula(best: BestLosses) -> ShownFormula:
    """Of the first in the table."""
    row = best.rows[0]
    loss = row.loss()
    if loss is None:
        return ShownFormula(best, row.formula, row.candidate.genome, "", None, None)
    is_softened = getattr(loss, "activation", "identity") == "softplus"
    text = formula_text(loss) if is_softened else row.formula
    return ShownFormula(
        best, text, row.candidate.genome, symbols_of(loss),
        mathml(loss, text, longest=_LONGEST_TYPESET), mathtext(loss, text, longest=_LONGEST_TYPESET),
    )  # fmt: skip


def run_name(run: Run) -> str:
    """Which of several it is."""
    return f"{run.method}, seed {run.seed}"
