"""A search in words: what the rivals, the final and the best loss came to."""

import math
from collections.abc import Callable, Mapping

from evomal.runs.finals import Final, Scores
from evomal.runs.results import SearchResult

Shown = Callable[[float], float]
"""From a cost to the metric itself."""


def shown_score(cost: float, shown: Shown = float) -> str:
    """A cost as its metric, or that there is none."""
    return f"{shown(cost):.4g}" if math.isfinite(cost) else "diverged"


def shown_scores(scores: Scores, shown: Shown = float) -> str:
    """Mean and standard deviation, as far as they are finite."""
    spread = f" ± {scores.deviation:.2g}" if math.isfinite(scores.deviation) else ""
    return shown_score(scores.mean, shown) + spread


def shown_rivals(rivals: Mapping[str, float | Scores], shown: Shown = float) -> str:
    """Each rival with its score, the baseline first."""
    return ", ".join(
        f"{name} {shown_scores(found, shown) if isinstance(found, Scores) else shown_score(found, shown)}"
        for name, found in rivals.items()
    )


def final_line(final: Final, shown: Shown = float) -> str:
    """The winner beside the best rival, and whether it leads."""
    name, rival = final.best_rival
    return (
        f"best {shown_scores(final.winner[1], shown)} ({final.seeds_in_words}); "
        f"{name} {shown_scores(rival, shown)}: {final.verdict}"
    )


def summary_lines(result: SearchResult) -> list[tuple[str, str]]:
    """What a person wants to know of the best loss: labels and texts."""
    best, final, shown, metric = result.best, result.final, result.value, result.metric
    rivals = [("rivals", f"{shown_rivals(result.rivals, shown)} (one training each)")] if result.rivals else []
    if best is None:
        return rivals
    lines = [("best loss", best.formula())]
    if best.expression is not None:
        lines.append(("expression", f"{best.expression} ({best.expression.size} nodes)"))
    found = f"found in generation {best.generation + 1}"
    if final is None:
        lines.append(("validation", f"{metric} {best.value:.4g} (the best of one training each), {found}"))
        return [*lines, *rivals]
    text = f"{metric} {shown_scores(Scores(best.scores), shown)} (mean of {final.seeds_in_words}), {found}"
    lines.append(("validation", f"{text}; in the search {best.value:.4g}"))
    lines.append(("rivals", f"{shown_rivals(final.rivals, shown)} (the same seeds)"))
    hint = "; `evomal compare` tells whether it does on test" if final.leads else ""
    lines.append(("final", final.verdict + hint))
    return lines
