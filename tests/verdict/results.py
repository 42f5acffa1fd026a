"""Results of comparisons that tests share, made by hand."""

import math

from evomal.engine import Score
from evomal.engine.scores import CurvePoint
from evomal.verdict.comparison import Command, Comparison, Entry, Trained
from evomal.verdict.words import Verdict


def trained(lr, tests):
    """A loss with a score for each value; None: diverged."""
    scores = tuple(
        Score(math.nan, math.nan, {}, [], 1000 + place, 30, "diverged", "the training loss was not finite by step 10")
        if test is None
        else Score(test, 2 * test, {"mse": test}, [CurvePoint(10, 1.5, test)], 1000 + place, 30, milestones=(20,))
        for place, test in enumerate(tests)
    )
    return Trained("(f - y)²", lr, 1.0, scores)


def entry(name, variant, lr, *searches):
    """A row of the values of each search; None: it found nothing."""
    return Entry(name, variant, tuple(None if tests is None else trained(lr, tests) for tests in searches))


def comparison(*entries, verdicts=None, words=None, **changes):
    """A comparison with these rows, verdicts (name to kind and sentence) and words of its command."""
    content = {
        "task": "own", "record": {"dataset": "own"}, "metric": "mse", "higher_is_better": False, "steps": 30,
        "milestones": (), "seeds": (1000, 1001), "search_seeds": (), "tune_lr": 0, "rates": (), "baseline": "mse",
        "entries": entries or (entry("mse", "plain", 0.1, [0.5, 0.5]),),
        "verdicts": {name: Verdict(*found) for name, found in (verdicts or {}).items()},
        "command": None if words is None else Command(tuple(words), "/somewhere"),
    }  # fmt: skip
    return Comparison(**{**content, **changes})
