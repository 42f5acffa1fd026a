"""The best loss of a task, as people read it."""

import math
from dataclasses import dataclass

from evomal.analysis.best_losses import BestLosses, RankedLoss
from evomal.analysis.chosen_runs import Run
from evomal.analysis.counting import counted
from evomal.report.harmless import cut
from evomal.report.loss_table import metric_value, shown_value
from evomal.report.typeset import formula_text, mathml, mathtext, symbols_of

_LONGEST_NAME, _MOST_RIVALS = 40, 20
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
        value = f"{metric_value(row.value, metric)} (one training)"
        if row.scores is not None and row.mean is not None:
            seeds = counted(len(row.scores.values), "fresh seed")
            value = (
                f"{metric_value(row.mean, metric)} (mean of {seeds}; {shown_value(row.value, metric)} in the search)"
            )
        return (
            f"Validation {value}{size}, "
            f"found in generation {row.generation} by {row.candidate.origin} ({run_name(row.run)}).{self._beside}"
        )

    @property
    def _beside(self) -> str:
        """What the rivals came to in the same search, where they were trained."""
        run, metric = self.row.run, self.best.metric
        costs = dict(run.rivals) if run.final is None else {name: one.mean for name, one in run.final.rivals.items()}
        shown = [
            f"{cut(name, _LONGEST_NAME)} {shown_value(run.value(cost), metric) if math.isfinite(cost) else 'diverged'}"
            for name, cost in costs.items()
        ]
        if not shown:
            return ""
        how = "one training each" if run.final is None else f"the same seeds: {cut(run.final.verdict, 200)}"
        return f" Known losses beside it: {', '.join(shown[:_MOST_RIVALS])} ({how})."


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
