"""Sparklines: a curve the size of a word, drawn by hand."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from evomal.figures.best_losses import BestLosses, LossShapeSketch, RankedLoss
from evomal.figures.style import FloatArray
from evomal.report.formulas import mathml
from evomal.report.page import in_code, scrolling
from evomal.runs.reading import Run
from evomal.tasks.metrics import metric_label, metric_number, metric_text
from evomal.text import LONGEST_FORMULA, escape_html, plural, shorten

_WIDTH, _HEIGHT, _MARGIN = 120.0, 36.0, 3.0
_FAR_OUT = 4.0  # times the span of all but the outermost values
_OPACITIES = (1.0, 0.6, 0.35)


def sparkline(positions: FloatArray, curves: Sequence[FloatArray], description: str) -> str:
    """An SVG element; the curves share a scale, and leave it where a few values would flatten all others."""
    low, high = _limits(curves)
    lines = "".join(
        f'<polyline points="{points}" fill="none" stroke="var(--blue, #0072b2)" stroke-width="1.6" '
        f'stroke-linejoin="round" vector-effect="non-scaling-stroke" opacity="{_OPACITIES[number % 3]:g}"/>'
        for number, values in enumerate(curves)
        for points in _pieces(positions, values, low, high)
    )
    box = f'viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}" preserveAspectRatio="none"'
    return f'<svg role="img" aria-label="{escape_html(description)}" {box}>{lines}</svg>'


def _limits(curves: Sequence[FloatArray]) -> tuple[float, float]:
    values = np.concatenate([curve[np.isfinite(curve)] for curve in curves]) if curves else np.zeros(0)
    if not values.size:
        return 0.0, 1.0
    low, high = float(values.min()), float(values.max())
    inner_low, inner_high = (float(edge) for edge in np.quantile(values, (0.05, 0.95)))
    if high - low > _FAR_OUT * (inner_high - inner_low) > 0:
        low, high = inner_low, inner_high
    return (low, high) if high > low else (low - 0.5, low + 0.5)


def _pieces(positions: FloatArray, values: FloatArray, low: float, high: float) -> Iterator[str]:
    """Points of the parts that are finite, each part at its height or at the edge it lies beyond."""
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


_LONGEST_SHOWN = 90
_LONGEST_WORD = 40
_FINAL = "mean in the final"


def metric_value(value: float, metric: str) -> str:
    """Metric, number and unit, for a sentence."""
    return f"{shorten(metric.replace('_', ' '), _LONGEST_WORD)} {metric_text(value, metric)}"


def loss_table(best: BestLosses, *, with_runs: bool) -> str:
    """HTML; `with_runs` also says of which method and seed a loss is."""
    with_final = any(row.scores is not None for row in best.rows)
    heads = ["rank", f"validation {metric_label(best.metric, _LONGEST_WORD)}", *([_FINAL] if with_final else [])]
    heads += ["shape", "size", "formula", "generation", "origin", *(["method", "seed"] if with_runs else [])]
    numbers = {"rank", heads[1], _FINAL, "size", "generation", "seed"}
    head = "".join(
        f'<th scope="col"{" class=number" if name in numbers else ""}>{escape_html(name)}</th>' for name in heads
    )
    rows = "".join(
        _row(place, row, best.metric, with_runs=with_runs, with_final=with_final)
        for place, row in enumerate(best.rows, 1)
    )
    table = f'<table class="losses"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<p class="soft">{escape_html(table_sentence(best))}</p>{scrolling(table, "the best distinct losses")}'


def table_sentence(best: BestLosses) -> str:
    """What is counted as one loss, and what the shapes are."""
    seen = f"The best {len(best.rows)} distinct losses of {best.trained} that were trained with"
    sketch = next((row.sketch for row in best.rows if row.sketch is not None), None)
    shapes = "" if sketch is None else f"; shapes: {_axis(sketch)}, each on a scale of its own"
    return f"{seen}; losses with one shape or one formula count once{shapes}."


def _row(place: int, row: RankedLoss, metric: str, *, with_runs: bool, with_final: bool) -> str:
    sketch, origin = row.sketch, shorten(row.candidate.origin, _LONGEST_WORD)
    drawn = "" if sketch is None else sparkline(sketch.positions, sketch.values, _axis(sketch))
    mean = None if row.mean is None else metric_number(row.mean, metric)
    shown = [
        _number(place), _number(metric_number(row.value, metric)), *([_number(mean)] if with_final else []),
        f"<td>{drawn}</td>", _number(row.size),
        f'<td class="formula-cell">{_formula(row)}</td>', _number(row.generation), f"<td>{escape_html(origin)}</td>",
    ]  # fmt: skip
    if with_runs:
        shown += [f"<td>{escape_html(shorten(row.run.method, _LONGEST_WORD))}</td>", _number(row.run.seed)]
    return f"<tr>{''.join(shown)}</tr>"


def _number(value: object) -> str:
    return f'<td class="number">{"" if value is None else escape_html(str(value))}</td>'


def _formula(row: RankedLoss) -> str:
    """The formula, or its beginning that opens to the whole."""
    if len(row.formula) <= _LONGEST_SHOWN:
        return in_code(row.formula)
    return (
        f"<details><summary>{in_code(row.formula, _LONGEST_SHOWN)}</summary>"
        f"{in_code(row.formula, 2 * LONGEST_FORMULA)}</details>"
    )


def _axis(sketch: LossShapeSketch) -> str:
    first, last = float(sketch.positions[0]), float(sketch.positions[-1])
    what = "the error f − y" if sketch.position_name == "f - y" else "the probability p of the target"
    several = (
        ", at y of −1, 0 and 1" if len(sketch.values) > 2 else ", at y of 1 and 0" if len(sketch.values) > 1 else ""
    )
    return f"value over {what} from {first:g} to {last:g}{several}"


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
            seeds = plural(len(row.scores.values), "fresh seed")
            value = (
                f"{metric_value(row.mean, metric)} (mean of {seeds}; {metric_number(row.value, metric)} in the search)"
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
            f"{shorten(name, _LONGEST_NAME)} "
            + (metric_number(run.value(cost), metric) if math.isfinite(cost) else "diverged")
            for name, cost in costs.items()
        ]
        if not shown:
            return ""
        how = "one training each" if run.final is None else f"the same seeds: {shorten(run.final.verdict, 200)}"
        return f" Known losses beside it: {', '.join(shown[:_MOST_RIVALS])} ({how})."


def shown_formula(best: BestLosses) -> ShownFormula:
    """Of the first in the table."""
    row = best.rows[0]
    loss = row.loss()
    if loss is None:
        return ShownFormula(best, row.formula, row.candidate.genome, "", None)
    text = loss.formula()
    typeset = mathml(loss, text, longest=_LONGEST_TYPESET)
    return ShownFormula(best, text, row.candidate.genome, loss.symbols(), typeset)


def run_name(run: Run) -> str:
    """Which of several it is."""
    return f"{run.method}, seed {run.seed}"
