"""How losses, results of searches, comparisons show themselves in notebooks.

Imported by evomal itself, so that everything heavy is imported only when something is shown.
"""

import hashlib
from collections.abc import Callable
from typing import Any

from evomal.losses.loss import Loss
from evomal.runs.results import Best, SearchResult
from evomal.verdict.comparison import Comparison

_BOX = '<div style="max-width: 46rem">{}</div>'


def loss_html(loss: Loss) -> str:
    """The formula, typeset where it fits, above the shape."""
    from evomal.figures.loss_shape import draw_loss, loss_shape
    from evomal.figures.style import inline_svg
    from evomal.report.formulas import mathml
    from evomal.report.page import in_code
    from evomal.text import escape_html

    formula = loss.formula()
    # Outputs of a notebook share a page, on which names inside figures must differ.
    prefix = f"e{hashlib.sha256(f'{loss!r} {loss.state_dict()}'.encode()).hexdigest()[:8]}-"
    description = "value and gradient of the loss, beside the task loss"
    parts = [
        f"<p><b>{escape_html(type(loss).__name__)}</b> for {escape_html(loss.kind)}</p>",
        mathml(loss, formula) or "",
        f"<p>{in_code(formula)}<br>{escape_html(loss.symbols())}</p>",
        inline_svg(draw_loss(loss_shape(loss)), description, prefix),
    ]
    return _BOX.format("".join(parts))


def best_html(best: Best) -> str:
    """What it came to and where it was found, above the loss itself."""
    size = "" if best.expression is None else f", of {best.expression.size} nodes"
    return f"<p>value {best.value:.4g}, found in generation {best.generation + 1}{size}</p>{loss_html(best.loss())}"


def result_html(result: SearchResult) -> str:
    """The best loss, below what became of the candidates and of the rivals."""
    from evomal.runs.results import summary_lines
    from evomal.text import escape_html

    counts = ", ".join(f"{count} {state}" for state, count in result.counts.items()) or "none"
    generations = len(result.history)
    ended = f"{generations} generation{'' if generations == 1 else 's'}: {result.ending}"
    about = f"<p>{escape_html(ended)}<br>candidates: {escape_html(counts)}</p>"
    lines = [text for label, text in summary_lines(result) if label in ("validation", "rivals", "final")]
    about += f"<p>{'<br>'.join(map(escape_html, lines))}</p>"
    return about + ("<p>nothing survived</p>" if result.best is None else best_html(result.best))


def comparison_html(comparison: Comparison) -> str:
    """Verdicts in words, then the table."""
    from evomal.text import escape_html, markdown_to_html
    from evomal.verdict.tables import comparison_markdown

    rest = comparison_markdown(comparison, verdicts=False)
    verdicts = "".join(f"<p><b>{escape_html(found.sentence)}</b></p>" for found in comparison.verdicts.values())
    return f'<div style="overflow-x: auto">{verdicts}{markdown_to_html(rest, "")}</div>'


def _shown_by(make: Callable[[Any], str]) -> Callable[[Any], str | None]:
    def _repr_html_(thing: Any) -> str | None:
        try:
            return make(thing)
        except Exception:  # The notebook shows the plain text then, and nobody loses a result to its display.
            return None

    return _repr_html_


_MAKERS: dict[type, Callable[[Any], str]] = {
    Loss: loss_html, Best: best_html, SearchResult: result_html, Comparison: comparison_html,
}  # fmt: skip
# Set from here, as the classes' own packages may not know that there are reports.
for _kind, _make in _MAKERS.items():
    setattr(_kind, "_repr_html_", _shown_by(_make))  # noqa: B010  (a type checker would not know the attribute)
