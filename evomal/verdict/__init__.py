"""The verdict: whether a learned loss is worth using."""

from evomal.verdict.comparing import compare
from evomal.verdict.comparison import Comparison
from evomal.verdict.learning_rates import RateCurve, rate_curve
from evomal.verdict.statistics import Direction, Paired, Summary, direction, paired, summarised
from evomal.verdict.transfer import Transfer, transfer
from evomal.verdict.words import POINTS, Evidence, Verdict, difference_words, learning_rate_words, verdict

__all__ = [
    "POINTS",
    "Comparison",
    "Direction",
    "Evidence",
    "Paired",
    "RateCurve",
    "Summary",
    "Transfer",
    "Verdict",
    "compare",
    "difference_words",
    "direction",
    "learning_rate_words",
    "paired",
    "rate_curve",
    "summarised",
    "transfer",
    "verdict",
]
