"""How losses, results of searches and comparisons are displayed in notebooks."""

import hashlib
from functools import singledispatch
from typing import Any

from evomal.figures.loss_shape import draw_loss, loss_shape
from evomal.losses.loss import Loss
from evomal.report.pages import figure_markup, mathml, render
from evomal.runs.results import Best, SearchResult, summary_lines
from evomal.text import plural
from evomal.verdict.comparison import Comparison
from evomal.verdict.tables import comparison_markdown


@singledispatch
def html_of(thing: Any) -> str:
    """Returns what a notebook displays for a loss, the result of a search or a comparison."""
    raise TypeError(f"there is no display for {type(thing).__name__}")


@html_of.register
def loss_html(loss: Loss) -> str:
    """Returns the formula, typeset if it fits on a line, above the shape of the loss."""
    return _rendered("loss", _loss_data(loss))


@html_of.register
def best_html(best: Best) -> str:
    """Returns the value of the best loss and where it was found, above the loss itself."""
    return _rendered("best", _best_data(best))


@html_of.register
def result_html(result: SearchResult) -> str:
    """Returns what became of the candidates and the rivals, above the best loss."""
    data = {
        "ended": f"{plural(len(result.history), 'generation')}: {result.ending}",
        "counts": ", ".join(f"{count} {state}" for state, count in result.counts.items()) or "none",
        "lines": [text for label, text in summary_lines(result) if label in ("validation", "rivals", "final")],
        "best": None if result.best is None else _best_data(result.best),
    }
    return _rendered("result", data)


@html_of.register
def comparison_html(comparison: Comparison) -> str:
    """Returns the verdicts in words, above the table."""
    sentences = [found.sentence for found in comparison.verdicts.values()]
    return _rendered("comparison", {"sentences": sentences, "table": comparison_markdown(comparison, verdicts=False)})


def _loss_data(loss: Loss) -> dict[str, Any]:
    formula = loss.formula()
    # All outputs of a notebook are on one page, on which the names inside figures must differ.
    prefix = f"e{hashlib.sha256(f'{loss!r} {loss.state_dict()}'.encode()).hexdigest()[:8]}-"
    description = "value and gradient of the loss, beside the task loss"
    return {
        "name": type(loss).__name__,
        "kind": loss.kind,
        "formula": formula,
        "mathml": mathml(loss, formula) or "",
        "symbols": loss.symbols(),
        "svg": figure_markup(draw_loss(loss_shape(loss)), description, prefix),
    }


def _best_data(best: Best) -> dict[str, Any]:
    size = "" if best.expression is None else f", {plural(best.expression.size, 'node')}"
    sentence = f"value {best.value:.4g}, found in generation {best.generation + 1}{size}"
    return {"sentence": sentence, "loss": _loss_data(best.loss())}


def _rendered(part: str, data: dict[str, Any]) -> str:
    return render("notebook.html", part=part, shown=data).strip()
