"""The verdict on a loss in words, computed from its comparisons.

Sentences have no full stop, so that they fit a table, a line of a terminal or a longer sentence.
"""

import math
from dataclasses import dataclass
from typing import Literal

from evomal.verdict.statistics import Direction, Paired, direction

POINTS = "points"
"""The unit of differences of shares, such as error rates: percentage points."""

Kind = Literal["gain", "no gain", "learning rate", "worse", "undecided"]

_FEWEST_SCIENTIFIC = 7  # digits after or zeros before the point, from which on an exponent reads better


@dataclass(frozen=True)
class Evidence:
    """What a loss was compared with; None for what was not measured.

    `plain` is both as they are; `tuned` is both at the learning rate that suits each best, `tuned_lr` being the
    baseline's; `rescaled` is against the baseline as it is, with the gradient of the loss rescaled to the norm of the
    baseline's gradient; `untuned` is the loss as it is against the tuned baseline; `tuning` is the tuned baseline
    against the baseline as it is.
    """

    plain: Paired
    tuned: Paired | None = None
    rescaled: Paired | None = None
    tuned_lr: float | None = None
    untuned: Paired | None = None
    tuning: Paired | None = None


@dataclass(frozen=True)
class Verdict:
    """What to think of a loss, in a word and in a sentence."""

    kind: Kind
    sentence: str


def verdict(evidence: Evidence, *, name: str, baseline_name: str, unit: str) -> Verdict:
    """Judge a loss: where both were tuned, that decides, and the rest says what to make of it.

    The first row that fits decides. "Open" is a comparison that was not made or has no interval (one seed, or a seed
    diverged); "even" is one whose interval holds zero; "untuned" is the loss as it is against the tuned baseline.

    | plain | tuned | rescaled | verdict |
    |---|---|---|---|
    | any | better | any | gain |
    | better, or the baseline alone diverged | even or worse, untuned not better | any | learning rate |
    | better, or the baseline alone diverged | even or worse, untuned better | even or worse | learning rate |
    | better, or the baseline alone diverged | even or worse, untuned better | better or open | undecided |
    | any | even | any | no gain |
    | any | worse | any | worse |
    | diverged in more seeds | open | any | worse |
    | any | diverged in more seeds | any | worse |
    | diverged, in no more seeds than either baseline | open | any | undecided |
    | worse | open | any | worse |
    | even | open | any | no gain |
    | one seed | open | any | undecided |
    | better, or the baseline alone diverged | open | even or worse | learning rate |
    | better, or the baseline alone diverged | open | better or open | undecided |

    The tuned comparison outweighs the rescaled gradient: a loss that beats the baseline at the best rate of each is no
    learning rate, even if it needs steps of its own size; what the best rate achieves as well needs no learned loss.
    Validation may choose rates that are worse on the test split, also for the baseline. A loss that is not tuned and
    beats the tuned baseline has nothing that tuning the baseline gives; and a rate at which the baseline is worse than
    at its own is not recommended. Neither turns a tuned comparison that is even into a gain.
    """
    plain, tuned = evidence.plain, evidence.tuned
    against_plain = difference_words(name, baseline_name, plain, unit=unit)
    to_keep = f"tuned {baseline_name}" if _tuning_pays(evidence) else f"{baseline_name} at its own rate"
    against_tuned = (
        "" if tuned is None else difference_words(name, f"tuned {baseline_name}", tuned, unit=unit, to_keep=to_keep)
    )
    about_rate = learning_rate_words(evidence, baseline_name=baseline_name)
    ahead = (plain.baseline_diverged and not plain.diverged) or _decided(plain) is Direction.BETTER
    by_tuning = _decided(tuned)
    if by_tuning is Direction.BETTER:
        return Verdict("gain", f"{against_tuned}: {about_rate if ahead else 'only at a learning rate of its own'}")
    if by_tuning is not None and ahead:
        if _explained_by_rate(evidence):
            return Verdict("learning rate", f"{against_plain}, but {about_rate}")
        return Verdict("undecided", f"{against_plain}, and tuned {baseline_name}, too, but {about_rate}")
    if by_tuning is Direction.UNDECIDED:
        return Verdict("no gain", against_tuned)
    if by_tuning is Direction.WORSE:
        return Verdict("worse", f"{against_tuned}: {_advice(evidence, baseline_name)}")
    if plain.diverged > plain.baseline_diverged:
        return Verdict("worse", f"{against_plain}, keep {baseline_name}")
    if tuned is not None and tuned.diverged > tuned.baseline_diverged:
        return Verdict("worse", f"{against_tuned}: {_advice(evidence, baseline_name)}")
    if plain.diverged:
        return Verdict("undecided", f"{against_plain}: lower the learning rate before comparing")
    if not plain.baseline_diverged:
        towards = _decided(plain)
        if towards is None:
            return Verdict("undecided", against_plain)
        if towards is Direction.WORSE:
            return Verdict("worse", against_plain)
        if towards is Direction.UNDECIDED:
            return Verdict("no gain", against_plain)
    if _explained_by_rate(evidence):
        return Verdict("learning rate", f"{against_plain}, but {about_rate}")
    return Verdict("undecided", f"{against_plain}, but {about_rate}")


def learning_rate_words(evidence: Evidence, *, baseline_name: str) -> str:
    """Whether what a loss gains over the plain baseline is a learning rate in disguise."""
    explained, rescaled = _explained_by_rate(evidence), _decided(evidence.rescaled)
    is_tuned, is_missed = _decided(evidence.tuned) is not None, _missed_by_tuning(evidence)
    if explained is None:
        if is_missed:
            return "not at the rate that validation chose for it: more seeds or more rows must decide"
        stays = "" if rescaled is None else ", though it stays when the gradient is rescaled"
        return f"the gain may be a learning rate{stays}: tune {baseline_name}"
    if not explained:
        needs = "" if rescaled in (None, Direction.BETTER) else ", though it is gone when the gradient is rescaled"
        return f"the gain is not a learning rate{needs}"
    if is_tuned and not is_missed:
        return f"the gain is a learning rate: {_advice(evidence, baseline_name)}"
    if is_tuned:
        found = f"the one that tuning {baseline_name} on validation finds"
        return f"the gain is a learning rate, though not {found}: it is gone when the gradient is rescaled"
    return f"the gain is a learning rate, as it is gone when the gradient is rescaled: tune {baseline_name}"


def difference_words(
    name: str, baseline_name: str, paired: Paired, *, unit: str, to_keep: str | None = None
) -> str:  # fmt: skip
    """A comparison in a sentence; in brackets, in how many seeds the loss was better.

    Where it is not, `to_keep` is what to stay with, the baseline unless given.

    `unit` follows the numbers: "points" for shares, which are shown in percent; empty where the metric has none. What
    follows ± is half the width of the interval. A lopsided interval may exclude zero although half its width is no less
    than the difference; its ends are given then.
    """
    if paired.diverged or paired.baseline_diverged or paired.difference is None:
        return _divergence_words(name, baseline_name, paired)
    to_keep = to_keep or baseline_name
    difference = _scaled(paired.difference, unit)
    suffix = f" {unit}" if unit else ""
    if paired.low is None or paired.high is None:
        found = f"{_number(difference, _decimals(difference) + 1)}{suffix}"
        return f"{name} cannot be judged against {baseline_name} by {_counted(paired)}: {found}, keep {to_keep}"
    low, high = _scaled(paired.low, unit), _scaled(paired.high, unit)
    half = (high - low) / 2
    decimals = _decimals(half) if half else _decimals(difference) + 1
    seeds = f"over {_counted(paired)}"
    towards = direction(paired)
    if towards is Direction.UNDECIDED:
        decimals += 1  # ends are compared with zero, which one digit is too coarse for
        ends = f"({_number(low, decimals)} to {_number(high, decimals)})"
        found = (
            f"{_number(difference, decimals)}{suffix} {ends} {seeds}" if half else f"the same in all {_counted(paired)}"
        )
        return f"{name} shows no gain over {baseline_name}: {found}, keep {to_keep}"
    amount = f"{_number(abs(difference), decimals)}{suffix}"
    if round(half, decimals) >= round(abs(difference), decimals):
        nearest, farthest = sorted((abs(low), abs(high)))
        amount = f"{amount} ({_number(nearest, _decimals(nearest))} to {_number(farthest, decimals)})"
    elif half:
        amount = f"{_number(abs(difference), decimals)} ± {_number(half, decimals)}{suffix}"
    verb = "beats" if towards is Direction.BETTER else "is worse than"
    return f"{name} {verb} {baseline_name} by {amount} {seeds} ({_score_words(paired)})"


def _divergence_words(name: str, baseline_name: str, paired: Paired) -> str:
    counts = [(name, paired.diverged), (baseline_name, paired.baseline_diverged)]
    (first, often), (second, rarely) = counts if paired.diverged else reversed(counts)
    others = f"{second} in {rarely or 'none'}"
    return f"{first} diverged in {often} of {_counted(paired)}, {others} ({_score_words(paired)})"


def _score_words(paired: Paired) -> str:
    return f"{paired.wins} of {paired.n}; {_p_words(paired.p)}"


def _p_words(p: float) -> str:
    if p < 0.001:
        return "p < 0.001"
    if p < 0.01:
        return f"p = {p:.1g}"
    # Nobody should read the wrong side of 0.05 out of a rounded number.
    return f"p = {p:.3g}" if round(p, 2) == 0.05 else f"p = {round(p, 2):g}"


def _counted(paired: Paired) -> str:
    if paired.n == 1:
        return f"1 {paired.noun}"
    return f"{paired.n} {'searches' if paired.noun == 'search' else 'seeds'}"


def _advice(evidence: Evidence, baseline_name: str) -> str:
    if not _tuning_pays(evidence):
        return f"keep {baseline_name} at its own rate"
    if evidence.tuned_lr is None:
        return f"use {baseline_name} at its tuned learning rate"
    return f"use {baseline_name} with lr {evidence.tuned_lr:g}"


def _tuning_pays(evidence: Evidence) -> bool:
    """Whether nothing speaks against the baseline's tuned rate."""
    return _decided(evidence.tuning) is not Direction.WORSE


def _decided(paired: Paired | None) -> Direction | None:
    """The direction; None where there is no interval to tell it from."""
    return None if paired is None or paired.low is None else direction(paired)


def _explained_by_rate(evidence: Evidence) -> bool | None:
    """Whether a learning rate explains the gain over the plain baseline; None where nothing tells."""
    tuned, rescaled = _decided(evidence.tuned), _decided(evidence.rescaled)
    if tuned is not None and not _missed_by_tuning(evidence):
        return tuned is not Direction.BETTER
    return True if rescaled in (Direction.UNDECIDED, Direction.WORSE) else None


def _missed_by_tuning(evidence: Evidence) -> bool:
    """Whether the loss as it is beats the tuned baseline, though tuned it does not: so its rate was not found."""
    is_ahead = _decided(evidence.untuned) is Direction.BETTER
    return is_ahead and _decided(evidence.tuned) in (Direction.UNDECIDED, Direction.WORSE)


def _scaled(value: float, unit: str) -> float:
    return 100 * value if unit == POINTS else value


def _decimals(value: float) -> int:
    """How many digits after the point leave one significant digit, or two where the first is a 1."""
    first, exponent = f"{abs(value):.1e}".split("e")
    return (1 if 1 <= float(first) < 2 else 0) - int(exponent)


def _number(value: float, decimals: int) -> str:
    value = round(value, decimals)
    sign = "−" if value < 0 else ""
    if not value or abs(decimals) < _FEWEST_SCIENTIFIC:
        return f"{sign}{abs(value):.{max(decimals, 0)}f}"
    digits = max(0, math.floor(math.log10(abs(value))) + decimals)
    return f"{sign}{abs(value):.{digits}e}"
