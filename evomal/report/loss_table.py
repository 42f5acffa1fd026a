"""The best distinct losses as a table, each with its shape."""

from evomal.analysis.best_losses import BestLosses, LossShapeSketch, RankedLoss
from evomal.report.harmless import LONGEST_FORMULA, cut, in_html
from evomal.report.page import in_code, scrolling
from evomal.report.sparklines import sparkline
from evomal.tasks.metrics import shown_in_percent

_LONGEST_SHOWN = 90
_LONGEST_WORD = 40
_FINAL = "mean in the final"


def metric_words(metric: str) -> str:
    """The metric with its unit: shares are shown in percent."""
    name = cut(metric.replace("_", " "), _LONGEST_WORD)
    return f"{name} (%)" if shown_in_percent(metric) else name


def shown_value(value: float, metric: str) -> str:
    """The number of it, in the metric's unit."""
    return f"{100 * value:.2f}" if shown_in_percent(metric) else f"{value:.4g}"


def metric_value(value: float, metric: str) -> str:
    """Metric, number and unit, for a sentence."""
    unit = " %" if shown_in_percent(metric) else ""
    return f"{cut(metric.replace('_', ' '), _LONGEST_WORD)} {shown_value(value, metric)}{unit}"


def loss_table(best: BestLosses, *, with_runs: bool) -> str:
    """HTML; `with_runs` also says of which method and seed a loss is."""
    with_final = any(row.scores is not None for row in best.rows)
    heads = ["rank", f"validation {metric_words(best.metric)}", *([_FINAL] if with_final else [])]
    heads += ["shape", "size", "formula", "generation", "origin", *(["method", "seed"] if with_runs else [])]
    numbers = {"rank", heads[1], _FINAL, "size", "generation", "seed"}
    head = "".join(
        f'<th scope="col"{" class=number" if name in numbers else ""}>{in_html(name)}</th>' for name in heads
    )
    rows = "".join(
        _row(place, row, best.metric, with_runs=with_runs, with_final=with_final)
        for place, row in enumerate(best.rows, 1)
    )
    table = f'<table class="losses"><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>'
    return f'<p class="soft">{in_html(table_sentence(best))}</p>{scrolling(table, "the best distinct losses")}'


def table_sentence(best: BestLosses) -> str:
    """What is counted as one loss, and what the shapes are."""
    seen = f"The best {len(best.rows)} distinct losses of {best.trained} that were trained with"
    sketch = next((row.sketch for row in best.rows if row.sketch is not None), None)
    shapes = "" if sketch is None else f"; shapes: {_axis(sketch)}, each on a scale of its own"
    return f"{seen}; losses with one shape or one formula count once{shapes}."


def _row(place: int, row: RankedLoss, metric: str, *, with_runs: bool, with_final: bool) -> str:
    sketch, origin = row.sketch, cut(row.candidate.origin, _LONGEST_WORD)
    drawn = "" if sketch is None else sparkline(sketch.positions, sketch.values, _axis(sketch))
    mean = None if row.mean is None else shown_value(row.mean, metric)
    shown = [
        _number(place), _number(shown_value(row.value, metric)), *([_number(mean)] if with_final else []),
        f"<td>{drawn}</td>", _number(row.size),
        f'<td class="formula-cell">{_formula(row)}</td>', _number(row.generation), f"<td>{in_html(origin)}</td>",
    ]  # fmt: skip
    if with_runs:
        shown += [f"<td>{in_html(cut(row.run.method, _LONGEST_WORD))}</td>", _number(row.run.seed)]
    return f"<tr>{''.join(shown)}</tr>"


def _number(value: object) -> str:
    return f'<td class="number">{"" if value is None else in_html(str(value))}</td>'


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
