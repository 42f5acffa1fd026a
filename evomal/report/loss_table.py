"""The best losses of a task as a table with small drawings of their shapes, and the best one in words."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from markupsafe import Markup

from evomal.figures.style import FloatArray
from evomal.report.best_losses import BestLosses, LossShapeSketch, RankedLoss
from evomal.report.pages import LONGEST_ON_A_LINE, mathml, own_markup
from evomal.runs.recorded_run import Run
from evomal.tasks.metric_display import metric_label, metric_number, metric_text, named_value
from evomal.text import escape_html, plural, shorten

_WIDTH, _HEIGHT, _MARGIN = 120.0, 36.0, 3.0
_FAR_OUT = 4.0  # times the span of the inner 90 % of the values
_OPACITIES = (1.0, 0.6, 0.35)
_LONGEST_WORD, _MOST_RIVALS = 40, 20
_LONGEST_TYPESET = 240  # characters; longer formulas are easier to read as text


@dataclass(frozen=True)
class TableRow:
    """One loss in a table, as text."""

    value: str
    mean: str | None
    """The mean in the final; None if the loss was not in it."""
    shape: Markup
    size: int | None
    formula: str
    generation: int
    origin: str
    method: str
    seed: object
    """As recorded; a file that evomal did not write may have anything here."""
    address: str = ""
    """Of the page about the candidate; empty on pages without such links."""


@dataclass(frozen=True)
class LossTable:
    """The best losses of one task, as the page shows them."""

    task: str
    metric: str
    """With its unit."""
    sentence: str
    rows: tuple[TableRow, ...]
    has_finals: bool
    has_runs: bool
    """Whether the table says by which method and seed a loss was found."""


def loss_table(best: BestLosses, *, with_runs: bool, address: str = "") -> LossTable:
    """Returns the table of the best losses; `with_runs` adds the method and the seed of each.

    With the `address` of a run's page, each loss is a link to the page of its candidate.
    """
    return LossTable(
        task=best.task,
        metric=metric_label(best.metric, _LONGEST_WORD),
        sentence=table_sentence(best),
        rows=tuple(_row(row, best.metric, address) for row in best.rows),
        has_finals=any(row.scores is not None for row in best.rows),
        has_runs=with_runs,
    )


def table_sentence(best: BestLosses) -> str:
    """Says which losses count as one, and what the drawings show."""
    counted = f"The best {len(best.rows)} distinct losses of {best.trained} trained"
    sketch = next((row.sketch for row in best.rows if row.sketch is not None), None)
    shapes = "" if sketch is None else f"; shapes: {_axis(sketch)}, each with its own scale"
    has_factors = any(row.candidate.factor != 1 for row in best.rows)
    factors = "; formulas are without the factor that belongs to their learning rate" if has_factors else ""
    return f"{counted}; losses with the same shape or the same formula count once{factors}{shapes}."


def _row(row: RankedLoss, metric: str, address: str) -> TableRow:
    sketch, place = row.sketch, row.candidate
    return TableRow(
        value=metric_number(row.value, metric),
        mean=None if row.mean is None else metric_number(row.mean, metric),
        shape=own_markup("") if sketch is None else sparkline(sketch.positions, sketch.values, _axis(sketch)),
        size=row.size,
        formula=row.formula,
        generation=row.generation,
        origin=shorten(row.candidate.origin, _LONGEST_WORD),
        method=shorten(row.run.method, _LONGEST_WORD),
        seed=row.run.seed,
        address=f"{address}/candidates/{place.generation}/{place.index}" if address else "",
    )


def _axis(sketch: LossShapeSketch) -> str:
    """Describes the axes of the drawings."""
    first, last = float(sketch.positions[0]), float(sketch.positions[-1])
    what = "the error f − y" if sketch.position_name == "f - y" else "the probability p of the target"
    curves = len(sketch.values)
    targets = ", for y = −1, 0 and 1" if curves > 2 else ", for y = 1 and 0" if curves > 1 else ""
    return f"value over {what} from {first:g} to {last:g}{targets}"


def sparkline(positions: FloatArray, curves: Sequence[FloatArray], description: str) -> Markup:
    """Returns curves in the size of a word as SVG; values far from all others are drawn at the edge of the scale."""
    low, high = _limits(curves)
    lines = "".join(
        f'<polyline points="{points}" fill="none" stroke="var(--blue, #0072b2)" stroke-width="1.6" '
        f'stroke-linejoin="round" vector-effect="non-scaling-stroke" opacity="{_OPACITIES[number % 3]:g}"/>'
        for number, values in enumerate(curves)
        for points in _pieces(positions, values, low, high)
    )
    box = f'viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" preserveAspectRatio="none"'
    return own_markup(f'<svg role="img" aria-label="{escape_html(description)}" {box}>{lines}</svg>')


def _limits(curves: Sequence[FloatArray]) -> tuple[float, float]:
    """The scale that the curves share."""
    values = np.concatenate([curve[np.isfinite(curve)] for curve in curves]) if curves else np.zeros(0)
    if not values.size:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    inner_low, inner_high = (float(edge) for edge in np.quantile(values, (0.05, 0.95)))
    if high - low > _FAR_OUT * (inner_high - inner_low) > 0:
        low, high = inner_low, inner_high
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _pieces(positions: FloatArray, values: FloatArray, low: float, high: float) -> Iterator[str]:
    """The points of each part of a curve that is finite, clipped to the scale."""
    x = _MARGIN + (positions - positions[0]) / (positions[-1] - positions[0]) * (_WIDTH - 2 * _MARGIN)
    is_known = np.isfinite(values)
    heights = (np.clip(np.where(is_known, values, low), low, high) - low) / (high - low)
    y = _HEIGHT - _MARGIN - heights * (_HEIGHT - 2 * _MARGIN)
    points: list[str] = []
    for known, across, down in zip(is_known, x, y, strict=True):
        if known:
            points.append(f"{across:.1f},{down:.1f}")
        elif points:
            yield " ".join(points)
            points = []
    if points:
        yield " ".join(points)


@dataclass(frozen=True)
class ShownFormula:
    """The best loss of a task: its formula, and its result in words."""

    best: BestLosses
    text: str
    written: str
    symbols: str
    mathml: Markup | None

    @property
    def row(self) -> RankedLoss:
        """The best loss in the table of its task."""
        return self.best.rows[0]

    @property
    def is_wide(self) -> bool:
        """Whether the typeset formula may not fit on the paper."""
        return len(self.text) > LONGEST_ON_A_LINE

    @property
    def sentence(self) -> str:
        """Its result on validation, where it was found, and the results of the rivals."""
        row, metric = self.row, self.best.metric
        size = "" if row.size is None else f", size {row.size}"
        value = f"{named_value(row.value, metric)} (one training)"
        if row.scores is not None and row.mean is not None:
            seeds = plural(len(row.scores.values), "fresh seed")
            in_search = metric_text(row.value, metric)
            value = f"{named_value(row.mean, metric)} (mean of {seeds}; {in_search} in the search)"
        return (
            f"Validation {value}{size}, "
            f"found in generation {row.generation} by {row.candidate.origin} ({run_name(row.run)}).{self._rivals}"
        )

    @property
    def _rivals(self) -> str:
        """The results of the rivals in the same search, if any were trained."""
        run, metric = self.row.run, self.best.metric
        costs = dict(run.rivals) if run.final is None else {name: one.mean for name, one in run.final.rivals.items()}
        shown = [f"{shorten(name, _LONGEST_WORD)} {run.shown_metric.text(cost)}" for name, cost in costs.items()]
        if not shown:
            return ""
        how = "one training each" if run.final is None else "the same seeds"
        verdict = "" if run.final is None else f" Final: {shorten(run.final.verdict(metric), 200)}."
        tasks = run.by_task[:_MOST_RIVALS]
        by_task = "".join(f" On {shorten(one.task, _LONGEST_WORD)}: {one.text()}." for one in tasks)
        return f" Rivals: {', '.join(shown[:_MOST_RIVALS])} ({how}).{verdict}{by_task}"


def shown_formula(best: BestLosses) -> ShownFormula:
    """Returns the formula of the first loss in the table."""
    row = best.rows[0]
    loss = row.loss()
    if loss is None:
        return ShownFormula(best, row.formula, row.candidate.genome, "", None)
    text = loss.formula()
    typeset = mathml(loss, text, longest=_LONGEST_TYPESET)
    return ShownFormula(best, text, row.candidate.genome, loss.symbols(), typeset)


def run_name(run: Run) -> str:
    """Returns the method and the seed, which tell the runs of a report apart."""
    return f"{run.method}, seed {run.seed}"
