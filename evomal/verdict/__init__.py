"""The verdict: whether a learned loss is worth using."""

from evomal.verdict.comparing import compare, rate_curve, transfer
from evomal.verdict.comparison import Command, Comparison, Entry, RateCurve, Trained, Transfer
from evomal.verdict.statistics import Direction, Paired, Summary, direction, paired, summarised
from evomal.verdict.words import Evidence, Verdict, difference_words, learning_rate_words, verdict

__all__ = [
    "Command",
    "Comparison",
    "Direction",
    "Entry",
    "Evidence",
    "Paired",
    "RateCurve",
    "Summary",
    "Trained",
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
