"""The verdict on a loss as a sentence, computed from its comparisons.

Sentences have no full stop, so that they fit a table, a line of a terminal or a longer sentence.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from evomal.tasks.metric_display import POINTS
from evomal.text import plural
from evomal.verdict.statistics import FEWEST_PAIRS, Direction, Paired, direction, is_confirmed

VerdictKind = Literal["gain", "no gain", "learning rate", "worse", "undecided", "diverged"]

_KINDS: dict[Direction, VerdictKind] = {Direction.WORSE: "worse", Direction.EVEN: "no gain"}
_FEWEST_SCIENTIFIC = 7  # digits after the point, or zeros before it, from which an exponent is easier to read


@dataclass(frozen=True)
class Evidence:
    """The comparisons of a loss with the baseline; None for those that were not made."""

    plain: Paired
    """Both at the untuned learning rate."""
    tuned: Paired | None = None
    """Both at the best learning rate of each."""
    rescaled: Paired | None = None
    """The loss, with its gradient rescaled to the norm of the baseline's gradient, and the untuned baseline."""
    tuned_lr: float | None = None
    """The best learning rate of the baseline."""
    untuned: Paired | None = None
    """The untuned loss and the tuned baseline."""
    tuning: Paired | None = None
    """The tuned baseline and the untuned one."""
    to_untuned: Paired | None = None
    """The tuned loss and the untuned baseline."""
    tuned_decay: float | None = None
    """The best weight decay of the baseline; None if it was not tuned."""

    @property
    def causes(self) -> str:
        """What was tuned, as what a gain may come from."""
        return "the learning rate" if self.tuned_decay is None else "the learning rate or the weight decay"


@dataclass(frozen=True)
class Verdict:
    """The verdict on a loss: its kind and a sentence."""

    kind: VerdictKind
    sentence: str


def verdict(evidence: Evidence, *, name: str, baseline_name: str, unit: str) -> Verdict:
    """Judge a loss: the tuned comparison decides if there is one, and the others explain it.

    The first row that matches decides. "Open" is a comparison that was not made or supports no claim (see `direction`):
    fewer than five pairs, a diverged training, or an interval that excludes zero although the test does not confirm it.
    "Even" is one whose interval contains zero; "untuned" is the untuned loss against the tuned baseline; "ahead" is
    better, or only the baseline diverged in so many seeds that the test confirms it; "gone" is a comparison that is
    worse, or even with an interval that rules out a gain as large as the plain one.

    | plain | tuned | rescaled | verdict |
    |---|---|---|---|
    | any | better, but tuning made the baseline worse and the loss is even to the untuned one | any | no gain |
    | any | the same, but worse than the untuned one, or open | any | worse, or undecided |
    | any | better | any | gain |
    | ahead | gone, untuned not better | any | learning rate |
    | ahead | even or worse, untuned better | gone | learning rate |
    | ahead | even or worse, untuned better | not gone | undecided |
    | any | even | any | no gain |
    | any | worse | any | worse |
    | any | open, nothing diverged | any | undecided |
    | diverged in more seeds than the baseline | open | any | diverged |
    | any | diverged in more seeds than the baseline | any | diverged |
    | diverged, in no more seeds than either baseline | open | any | undecided |
    | ahead | open | gone | learning rate |
    | ahead | open | not gone | undecided |
    | the baseline alone diverged, but not ahead | open | any | undecided |
    | worse | open | any | worse |
    | even | open | any | no gain |
    | open | open | any | undecided |

    The tuned comparison outweighs the rescaled gradient: the gain of a loss that beats the baseline at the best
    learning rate of each does not come from the learning rate, even if the loss needs steps of another size; and a gain
    that the best learning rate achieves as well needs no learned loss. Validation may choose rates that are worse on
    the test split, also for the baseline. If an untuned loss beats the tuned baseline, tuning the baseline does not
    give its gain; and a rate at which the baseline is worse than untuned is not recommended. Neither turns a tuned
    comparison that is even into a gain. Nor is it one to beat a baseline that tuning made worse.

    Args:
        evidence: The comparisons of the loss with the baseline.
        name: The name of the loss.
        baseline_name: The name of the baseline.
        unit: The unit of differences, see `difference_words`.

    Returns:
        The verdict.
    """
    plain, tuned = evidence.plain, evidence.tuned
    against_plain = difference_words(name, baseline_name, plain, unit=unit)
    to_keep = f"tuned {baseline_name}" if _tuning_pays(evidence) else f"untuned {baseline_name}"
    against_tuned = (
        "" if tuned is None else difference_words(name, f"tuned {baseline_name}", tuned, unit=unit, to_keep=to_keep)
    )
    about_rate = learning_rate_words(evidence, baseline_name=baseline_name, unit=unit)
    is_ahead, by_tuning, towards = _is_ahead(plain), _direction(tuned), direction(plain)
    if by_tuning is Direction.BETTER and not _tuning_pays(evidence) and evidence.to_untuned is not None:
        untuned = _direction(evidence.to_untuned)
        if untuned is not Direction.BETTER:
            kept = difference_words(name, f"untuned {baseline_name}", evidence.to_untuned, unit=unit)
            return Verdict(_KINDS.get(untuned, "undecided"), f"{against_tuned}, which tuning made worse; {kept}")
    if by_tuning is Direction.BETTER:
        reason = f": {about_rate}" if is_ahead else f", but only at its own tuned {_settings(evidence)}"
        return Verdict("gain", f"{against_tuned}{reason}")
    if by_tuning is not Direction.UNDECIDED and is_ahead:
        if _explained_by_rate(evidence):
            return Verdict("learning rate", f"{against_plain}, but {about_rate}")
        if _missed_by_tuning(evidence):
            return Verdict(
                "undecided", f"{against_plain}, and {name} also beats tuned {baseline_name}, but {about_rate}"
            )
    if by_tuning is Direction.EVEN:
        return Verdict("no gain", against_tuned)
    if by_tuning is Direction.WORSE:
        return Verdict("worse", f"{against_tuned}: {_advice(evidence, baseline_name)}")
    if tuned is not None and not (tuned.diverged or tuned.baseline_diverged):
        return Verdict("undecided", against_tuned)
    if plain.diverged > plain.baseline_diverged:
        return Verdict("diverged", f"{against_plain}: keep {baseline_name}")
    if tuned is not None and tuned.diverged > tuned.baseline_diverged:
        return Verdict("diverged", f"{against_tuned}: {_advice(evidence, baseline_name)}")
    if is_ahead:
        kind: VerdictKind = "learning rate" if _explained_by_rate(evidence) else "undecided"
        return Verdict(kind, f"{against_plain}, but {about_rate}")
    if plain.diverged or plain.baseline_diverged:
        return Verdict("undecided", f"{against_plain}: lower the learning rate before comparing")
    return Verdict(_KINDS.get(towards, "undecided"), against_plain)


def learning_rate_words(evidence: Evidence, *, baseline_name: str, unit: str = "") -> str:
    """Say whether the gain of a loss over the untuned baseline comes from the learning rate.

    If it does, the tuned difference is said with its interval: a gain that is smaller than the untuned one, but that so
    few seeds do not show, may remain.
    """
    explained, rescaled = _explained_by_rate(evidence), _direction(evidence.rescaled)
    is_tuned, is_missed = _direction(evidence.tuned) is not Direction.UNDECIDED, _missed_by_tuning(evidence)
    if explained is None:
        if is_missed:
            chosen = f"the {_settings(evidence)} that validation chose for it"
            return f"not at {chosen}: more seeds or more data are needed to decide"
        stays = ", although it remains when the gradient is rescaled" if rescaled is Direction.BETTER else ""
        what_next = "more seeds are needed to decide" if is_tuned else f"tune {baseline_name}"
        return f"the gain may come from {evidence.causes}{stays}: {what_next}"
    if not explained:
        needs = ""
        if _is_gone(evidence.rescaled, evidence.plain):
            needs = ", although it disappears when the gradient is rescaled"
        elif rescaled is Direction.EVEN:
            needs = ", although it is not shown when the gradient is rescaled"
        return f"the gain does not come from {evidence.causes}{needs}"
    if is_tuned and not is_missed:
        assert evidence.tuned is not None
        is_even = direction(evidence.tuned) is Direction.EVEN
        part, shown = (" at least in part", "no difference is shown,") if is_even else ("", "the loss is worse by")
        found = f"with both tuned, {shown} {_with_ends(evidence.tuned, unit)}"
        return f"the gain comes{part} from {evidence.causes}: {found}; {_advice(evidence, baseline_name)}"
    if is_tuned:
        assert evidence.tuned is not None
        found = f"although not from the one that tuning {baseline_name} on validation finds"
        worse = direction(evidence.tuned) is Direction.WORSE
        also = f"; with both tuned, the loss is worse by {_with_ends(evidence.tuned, unit)}" if worse else ""
        gone = "it disappears when the gradient is rescaled"
        return f"the gain comes at least in part from the learning rate, {found}: {gone}{also}"
    return (
        f"the gain comes from the learning rate, as it disappears when the gradient is rescaled: tune {baseline_name}"
    )


def difference_words(
    name: str, baseline_name: str, paired: Paired, *, unit: str, to_keep: str | None = None
) -> str:  # fmt: skip
    """Put a comparison in a sentence that claims no more than `direction` does.

    Args:
        name: The name of the loss.
        baseline_name: The name of what it is compared with.
        paired: The comparison.
        unit: The unit of the numbers: "points" for shares, which are shown in percent; empty if the metric has none.
        to_keep: What to keep if there is no gain; the baseline by default; empty: nothing is said of it.

    Returns:
        The sentence, without a full stop. In brackets is in how many seeds the loss was better. The number after ± is
        half the width of the interval; a skewed interval may exclude zero although half its width is not less than the
        difference, and its ends are given then.
    """
    if paired.diverged or paired.baseline_diverged or paired.difference is None:
        return _divergence_words(name, baseline_name, paired)
    towards, seeds = direction(paired), f"over {_counted(paired)}"
    if towards is Direction.UNDECIDED:
        few = paired.n < FEWEST_PAIRS
        reason = (
            f"too few to decide: at least {FEWEST_PAIRS} are needed"
            if few
            else f"too uncertain to decide: more {'searches' if paired.noun == 'search' else 'seeds'} are needed"
        )
        if _is_constant(paired) and not paired.difference:
            return f"{name} is the same as {baseline_name} in {_counted(paired)}, {reason}"
        found = _with_ends(paired, unit)
        return f"{name} differs from {baseline_name} by {found} {seeds} ({_score_words(paired)}), {reason}"
    if towards is Direction.EVEN:
        found = f"the same in all {_counted(paired)}" if _is_constant(paired) else f"{_with_ends(paired, unit)} {seeds}"
        keep = "" if to_keep == "" else f"; keep {to_keep or baseline_name}"
        return f"{name} shows no gain over {baseline_name}: {found}{keep}"
    assert paired.low is not None  # without an interval the direction is undecided
    assert paired.high is not None
    difference, low, high = (_scaled(value, unit) for value in (paired.difference, paired.low, paired.high))
    half = (high - low) / 2
    decimals = _decimals(half) if half else _decimals(difference) + 1
    suffix = f" {unit}" if unit else ""
    amount = f"{_number(abs(difference), decimals)}{suffix}"
    if round(half, decimals) >= round(abs(difference), decimals):
        nearest, farthest = sorted((abs(low), abs(high)))
        amount = f"{amount} ({_number(nearest, _decimals(nearest))} to {_number(farthest, decimals)})"
    elif half:
        amount = f"{_number(abs(difference), decimals)} ± {_number(half, decimals)}{suffix}"
    verb = "beats" if towards is Direction.BETTER else "is worse than"
    return f"{name} {verb} {baseline_name} by {amount} {seeds} ({_score_words(paired)})"


def nothing_found(name: str, baseline_name: str) -> Verdict:
    """The verdict on a method whose searches found nothing."""
    return Verdict("no gain", f"{name} found no loss that passed its filters: keep {baseline_name}")


def schedule_words(steps: int, milestones: Sequence[int]) -> str:
    """The number of steps of a training, and those at which its learning rate was divided by ten."""
    if not milestones:
        return plural(steps, "step")
    places = " and ".join(f"{milestone:,}" for milestone in milestones)
    return f"{steps:,} steps (learning rate divided by ten at {places})"


def _with_ends(paired: Paired, unit: str) -> str:
    """The mean difference with its sign, and the ends of its interval if there is one."""
    assert paired.difference is not None
    difference, suffix = _scaled(paired.difference, unit), f" {unit}" if unit else ""
    if paired.low is None or paired.high is None or _is_constant(paired):
        return f"{_number(difference, _decimals(difference) + 1)}{suffix}"
    low, high = _scaled(paired.low, unit), _scaled(paired.high, unit)
    decimals = _decimals((high - low) / 2) + 1  # readers compare the ends with zero, so one more digit
    return f"{_number(difference, decimals)}{suffix} ({_number(low, decimals)} to {_number(high, decimals)})"


def _is_constant(paired: Paired) -> bool:
    """Whether the difference is the same in all pairs."""
    return paired.low is not None and paired.low == paired.high


def _divergence_words(name: str, baseline_name: str, paired: Paired) -> str:
    counts = [(name, paired.diverged), (baseline_name, paired.baseline_diverged)]
    (first, often), (second, rarely) = counts if paired.diverged else reversed(counts)
    others = f"{second} in {rarely or 'none'}"
    return f"{first} diverged in {often} of {_counted(paired)}, {others} ({name} {_score_words(paired)})"


def _score_words(paired: Paired) -> str:
    return f"won {paired.wins} of {paired.n}; {_p_words(paired.p)}"


def _p_words(p: float) -> str:
    if p < 0.001:
        return "p < 0.001"
    if p < 0.01:
        return f"p = {p:.1g}"
    # A rounded number must not be on the other side of 0.05.
    return f"p = {p:.3g}" if round(p, 2) == 0.05 else f"p = {round(p, 2):g}"


def _counted(paired: Paired) -> str:
    return plural(paired.n, paired.noun)


def _advice(evidence: Evidence, baseline_name: str) -> str:
    if not _tuning_pays(evidence):
        return f"keep untuned {baseline_name}"
    if evidence.tuned_lr is None:
        return f"use {baseline_name} at its tuned {_settings(evidence)}"
    decay = "" if evidence.tuned_decay is None else f" and weight decay {evidence.tuned_decay:g}"
    return f"use {baseline_name} with lr {evidence.tuned_lr:g}{decay}"


def _settings(evidence: Evidence) -> str:
    """What was tuned, in words."""
    return "learning rate" if evidence.tuned_decay is None else "learning rate and weight decay"


def _tuning_pays(evidence: Evidence) -> bool:
    """Whether the tuned baseline is not shown to be worse than the untuned one."""
    return _direction(evidence.tuning) is not Direction.WORSE


def _direction(paired: Paired | None) -> Direction:
    """The direction; undecided if the comparison was not made."""
    return Direction.UNDECIDED if paired is None else direction(paired)


def _is_ahead(paired: Paired) -> bool:
    """Whether the loss is better, or only the baseline diverged and the test confirms that."""
    only_baseline_diverged = bool(paired.baseline_diverged) and not paired.diverged
    return direction(paired) is Direction.BETTER or (
        only_baseline_diverged and is_confirmed(paired) and paired.wins > paired.losses
    )


def _is_gone(other: Paired | None, plain: Paired) -> bool:
    """Whether another comparison rules out a gain as large as that over the untuned baseline.

    An interval that contains zero is not enough: any wide interval does.
    """
    if other is None or other.low is None or direction(other) not in (Direction.EVEN, Direction.WORSE):
        return False
    # If the gain was that the baseline diverged, it is gone as soon as the baseline does not diverge.
    return plain.difference is None or bool(plain.baseline_diverged) or other.low > plain.difference


def _explained_by_rate(evidence: Evidence) -> bool | None:
    """Whether the learning rate explains the gain over the untuned baseline; None if that is not known."""
    tuned = _direction(evidence.tuned)
    if tuned is Direction.BETTER:
        return False
    is_missed = tuned is Direction.UNDECIDED or _missed_by_tuning(evidence)
    return _is_gone(evidence.rescaled if is_missed else evidence.tuned, evidence.plain) or None


def _missed_by_tuning(evidence: Evidence) -> bool:
    """Whether the untuned loss beats the tuned baseline but the tuned loss does not: tuning missed its rate."""
    is_ahead = _direction(evidence.untuned) is Direction.BETTER
    return is_ahead and _direction(evidence.tuned) in (Direction.EVEN, Direction.WORSE)


def _scaled(value: float, unit: str) -> float:
    return 100 * value if unit == POINTS else value


def _decimals(value: float) -> int:
    """The number of decimals that leave one significant digit, or two if the first is a 1."""
    first, exponent = f"{abs(value):.1e}".split("e")
    return (1 if 1 <= float(first) < 2 else 0) - int(exponent)


def _number(value: float, decimals: int) -> str:
    value = round(value, decimals)
    sign = "−" if value < 0 else ""
    if not value or abs(decimals) < _FEWEST_SCIENTIFIC:
        return f"{sign}{abs(value):.{max(decimals, 0)}f}"
    digits = max(0, math.floor(math.log10(abs(value))) + decimals)
    return f"{sign}{abs(value):.{digits}e}"
