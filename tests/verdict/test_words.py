"""The sentences of a verdict, one for each row of its decision table, and their numbers."""

import math
from collections import Counter

import numpy as np
import pytest

from evomal.verdict.statistics import Paired, paired
from evomal.verdict.words import Evidence, Verdict, difference_words, learning_rate_words, verdict


def comparison(difference, low, high, *, n=5, wins=3, p=0.5, diverged=0, baseline_diverged=0):
    return Paired(n, difference, low, high, p, "Wilcoxon", wins, 0, n - wins, diverged, baseline_diverged)


SURE = {"wins": 5, "p": 0.0625}
BETTER = comparison(-0.3, -0.5, -0.1, wins=5, p=0.0625)
EVEN = comparison(0.1, -0.1, 0.3)  # rules out a gain of 0.3
WIDE = comparison(-0.1, -0.5, 0.3)  # does not
WORSE = comparison(0.3, 0.1, 0.5, wins=0, p=0.0625)
UNCONFIRMED = comparison(-0.3, -0.5, -0.1, wins=4, p=0.125)
ONE_SEED = comparison(-0.3, None, None, n=1, wins=1, p=1.0)
THREE_SEEDS = comparison(-0.3, -0.5, -0.1, n=3, wins=3, p=0.25)
DIVERGED_MORE = comparison(-0.3, None, None, diverged=2, baseline_diverged=1)
DIVERGED_ALIKE = comparison(-0.3, None, None, diverged=1, baseline_diverged=1)
DIVERGED_LESS = comparison(-0.3, None, None, diverged=1, baseline_diverged=2)
BASELINE_DIVERGED = comparison(-0.3, None, None, wins=5, p=0.0625, baseline_diverged=2)
BASELINE_DIVERGED_ONCE = comparison(-0.3, None, None, wins=4, p=0.125, baseline_diverged=1)
NOT_MEASURED = None

BEATS = "evomal beats mse by 0.3 ± 0.2 over 5 seeds (won 5 of 5; p = 0.06)"
BEATS_TUNED = "evomal beats tuned mse by 0.3 ± 0.2 over 5 seeds (won 5 of 5; p = 0.06)"
IS_WORSE = "evomal is worse than mse by 0.3 ± 0.2 over 5 seeds (won 0 of 5; p = 0.06)"
WORSE_THAN_TUNED = (
    "evomal is worse than tuned mse by 0.3 ± 0.2 over 5 seeds (won 0 of 5; p = 0.06): use mse with lr 0.03"
)
NO_GAIN = "evomal shows no gain over mse: 0.10 (−0.10 to 0.30) over 5 seeds; keep mse"
MSE_DIVERGED = "mse diverged in 2 of 5 seeds, evomal in none (evomal won 5 of 5; p = 0.06)"
LOWER = "lower the learning rate before comparing"
RATE = (
    "the gain comes at least in part from the learning rate: with both tuned, no difference is shown, "
    "0.10 (−0.10 to 0.30); use mse with lr 0.03"
)
RATE_AND_WIDE = RATE.replace("0.10 (−0.10", "−0.10 (−0.50")
RATE_AND_WORSE = (
    "the gain comes from the learning rate: with both tuned, the loss is worse by 0.30 (0.10 to 0.50); "
    "use mse with lr 0.03"
)
RATE_BY_RESCALING = "the gain comes from the learning rate, as it disappears when the gradient is rescaled: tune mse"
NOT_RATE = "the gain does not come from the learning rate"
MAYBE_RATE = "the gain may come from the learning rate"
RATE_NOT_FOUND = (
    "the gain comes at least in part from the learning rate, although not from the one that tuning mse on validation "
    "finds: it disappears when the gradient is rescaled"
)
NOT_ITS_OWN_RATE = "not at the learning rate that validation chose for it: more seeds or more data are needed to decide"
TOO_FEW = "too few to decide: at least 5 are needed"
UNCERTAIN = "too uncertain to decide: more seeds are needed"

NO_GAIN_TUNED = "evomal shows no gain over tuned mse: 0.10 (−0.10 to 0.30) over 5 seeds; keep tuned mse"
WIDE_TUNED = "evomal shows no gain over tuned mse: −0.10 (−0.50 to 0.30) over 5 seeds; keep tuned mse"
OF_ITS_OWN = "but only at its own tuned learning rate"

TABLE = [
    *(
        (plain, BETTER, rescaled, "gain", f"{BEATS_TUNED}, {OF_ITS_OWN}")
        for plain in (
            EVEN, WIDE, WORSE, UNCONFIRMED, ONE_SEED, DIVERGED_MORE, DIVERGED_ALIKE, DIVERGED_LESS,
            BASELINE_DIVERGED_ONCE,
        )
        for rescaled in (BETTER, NOT_MEASURED)
    ),
    *(
        (plain, tuned, rescaled, "no gain", words)
        for plain in (EVEN, WORSE, UNCONFIRMED, DIVERGED_MORE, DIVERGED_ALIKE)
        for tuned, words in [(EVEN, NO_GAIN_TUNED), (WIDE, WIDE_TUNED)]
        for rescaled in (BETTER, NOT_MEASURED)
    ),
    *((BETTER, WIDE, rescaled, "no gain", WIDE_TUNED) for rescaled in (BETTER, EVEN, NOT_MEASURED)),
    *(
        (plain, WORSE, rescaled, "worse", WORSE_THAN_TUNED)
        for plain in (EVEN, WORSE, UNCONFIRMED, DIVERGED_MORE)
        for rescaled in (BETTER, NOT_MEASURED)
    ),
    *(
        (plain, UNCONFIRMED, rescaled, "undecided", (
            f"evomal differs from tuned mse by −0.30 (−0.50 to −0.10) over 5 seeds (won 4 of 5; p = 0.12), {UNCERTAIN}"
        ))
        for plain in (BETTER, EVEN, WORSE, DIVERGED_MORE)
        for rescaled in (BETTER, EVEN, NOT_MEASURED)
    ),
    *(
        (plain, THREE_SEEDS, rescaled, "undecided", (
            f"evomal differs from tuned mse by −0.30 (−0.50 to −0.10) over 3 seeds (won 3 of 3; p = 0.25), {TOO_FEW}"
        ))
        for plain in (THREE_SEEDS, BETTER)
        for rescaled in (BETTER, EVEN, NOT_MEASURED)
    ),
    (
        DIVERGED_MORE,
        NOT_MEASURED,
        BETTER,
        "diverged",
        "evomal diverged in 2 of 5 seeds, mse in 1 (evomal won 3 of 5; p = 0.5): keep mse",
    ),
    (
        DIVERGED_ALIKE,
        comparison(-0.3, None, None, diverged=1),
        NOT_MEASURED,
        "diverged",
        "evomal diverged in 1 of 5 seeds, tuned mse in none (evomal won 3 of 5; p = 0.5): use mse with lr 0.03",
    ),
    *(
        (
            plain,
            tuned,
            BETTER,
            "undecided",
            f"evomal diverged in 1 of 5 seeds, mse in {count} (evomal won 3 of 5; p = 0.5): {LOWER}",
        )
        for plain, count in [(DIVERGED_ALIKE, 1), (DIVERGED_LESS, 2)]
        for tuned in (NOT_MEASURED, DIVERGED_ALIKE)
    ),
    *(
        (BASELINE_DIVERGED_ONCE, NOT_MEASURED, rescaled, "undecided", (
            f"mse diverged in 1 of 5 seeds, evomal in none (evomal won 4 of 5; p = 0.12): {LOWER}"
        ))
        for rescaled in (BETTER, EVEN, NOT_MEASURED)
    ),
    *(
        (WORSE, tuned, rescaled, "worse", IS_WORSE)
        for tuned in (BASELINE_DIVERGED, NOT_MEASURED)
        for rescaled in (BETTER, NOT_MEASURED)
    ),
    *(
        (EVEN, tuned, rescaled, "no gain", NO_GAIN)
        for tuned in (BASELINE_DIVERGED, NOT_MEASURED)
        for rescaled in (BETTER, WORSE, NOT_MEASURED)
    ),
    *(
        (plain, NOT_MEASURED, rescaled, "undecided", f"evomal differs from mse by {words}")
        for plain, words in [
            (ONE_SEED, f"−0.30 over 1 seed (won 1 of 1; p = 1), {TOO_FEW}"),
            (THREE_SEEDS, f"−0.30 (−0.50 to −0.10) over 3 seeds (won 3 of 3; p = 0.25), {TOO_FEW}"),
            (UNCONFIRMED, f"−0.30 (−0.50 to −0.10) over 5 seeds (won 4 of 5; p = 0.12), {UNCERTAIN}"),
        ]
        for rescaled in (BETTER, EVEN, WORSE, NOT_MEASURED)
    ),
    *(
        (plain, BETTER, rescaled, "gain", f"{BEATS_TUNED}: the gain does not come from the learning rate")
        for plain in (BETTER, BASELINE_DIVERGED)
        for rescaled in (BETTER, BASELINE_DIVERGED, UNCONFIRMED, NOT_MEASURED)
    ),
    *(
        (BETTER, BETTER, rescaled, "gain", f"{BEATS_TUNED}: {NOT_RATE}, although it {words}")
        for rescaled, words in [
            (EVEN, "disappears when the gradient is rescaled"),
            (WORSE, "disappears when the gradient is rescaled"),
            (WIDE, "is not shown when the gradient is rescaled"),
        ]
    ),
    *(
        (plain, tuned, rescaled, "learning rate", f"{words}, but {rate}")
        for plain, words in [(BETTER, BEATS), (BASELINE_DIVERGED, MSE_DIVERGED)]
        for tuned, rate in [(EVEN, RATE), (WORSE, RATE_AND_WORSE)]
        for rescaled in (BETTER, EVEN, WORSE, NOT_MEASURED)
    ),
    (BASELINE_DIVERGED, WIDE, NOT_MEASURED, "learning rate", f"{MSE_DIVERGED}, but {RATE_AND_WIDE}"),
    *(
        (BETTER, tuned, rescaled, "learning rate", f"{BEATS}, but {RATE_BY_RESCALING}")
        for tuned in (BASELINE_DIVERGED, NOT_MEASURED)
        for rescaled in (EVEN, WORSE)
    ),
    *(
        (plain, tuned, rescaled, "undecided", f"{words}, but the gain may come from the learning rate: tune mse")
        for plain, words in [(BETTER, BEATS), (BASELINE_DIVERGED, MSE_DIVERGED)]
        for tuned in (BASELINE_DIVERGED, NOT_MEASURED)
        for rescaled in (NOT_MEASURED, UNCONFIRMED)
    ),
    (BETTER, NOT_MEASURED, WIDE, "undecided", f"{BEATS}, but the gain may come from the learning rate: tune mse"),
    (
        BETTER,
        NOT_MEASURED,
        BETTER,
        "undecided",
        f"{BEATS}, but {MAYBE_RATE}, although it remains when the gradient is rescaled: tune mse",
    ),
]  # fmt: skip


@pytest.mark.parametrize(("plain", "tuned", "rescaled", "kind", "sentence"), TABLE)
def test_each_row_of_the_table_has_its_verdict_and_its_sentence(plain, tuned, rescaled, kind, sentence):
    evidence = Evidence(plain, tuned, rescaled, None if tuned is None else 0.03)
    assert verdict(evidence, name="evomal", baseline_name="mse", unit="") == Verdict(kind, sentence)


@pytest.mark.parametrize("plain", [(BETTER, BEATS), (BASELINE_DIVERGED, MSE_DIVERGED)])
@pytest.mark.parametrize("tuned", [EVEN, WORSE])
@pytest.mark.parametrize(
    ("untuned", "rescaled", "kind", "sentence"),
    [
        *((untuned, rescaled, "learning rate", RATE) for untuned in (EVEN, WORSE) for rescaled in (BETTER, EVEN, None)),
        *((BETTER, rescaled, "learning rate", RATE_NOT_FOUND) for rescaled in (EVEN, WORSE)),
        *((BETTER, rescaled, "undecided", NOT_ITS_OWN_RATE) for rescaled in (BETTER, NOT_MEASURED)),
    ],
)
def test_a_rate_is_recommended_only_where_the_baseline_has_the_gain_with_it(
    plain, tuned, untuned, rescaled, kind, sentence
):
    paired_plain, words = plain
    evidence = Evidence(paired_plain, tuned, rescaled, 0.03, untuned)
    found = verdict(evidence, name="evomal", baseline_name="mse", unit="")
    if tuned is WORSE and kind == "learning rate":
        also = "; with both tuned, the loss is worse by 0.30 (0.10 to 0.50)"
        sentence = RATE_AND_WORSE if sentence is RATE else f"{sentence}{also}"
    too = ", and evomal also beats tuned mse" if kind == "undecided" else ""
    assert found == Verdict(kind, f"{words}{too}, but {sentence}")


@pytest.mark.parametrize(
    ("plain", "tuned", "kind", "words"),
    [
        (EVEN, EVEN, "no gain", "keep untuned mse"),
        (WORSE, WORSE, "worse", ": keep untuned mse"),
        (BETTER, WORSE, "learning rate", RATE_AND_WORSE.replace("use mse with lr 0.03", "keep untuned mse")),
        (EVEN, DIVERGED_MORE, "diverged", ": keep untuned mse"),
    ],
)
def test_a_rate_at_which_the_baseline_is_worse_is_not_recommended(plain, tuned, kind, words):
    if tuned is DIVERGED_MORE:
        plain = DIVERGED_ALIKE
    worse, better = (
        verdict(Evidence(plain, tuned, None, 0.03, None, tuning), name="evomal", baseline_name="mse", unit="")
        for tuning in (WORSE, BETTER)
    )
    assert worse.kind == better.kind == kind
    assert worse.sentence.endswith(words)
    assert better.sentence.endswith(("use mse with lr 0.03", "keep tuned mse"))


@pytest.mark.parametrize(
    ("to_untuned", "kind", "words"),
    [
        (EVEN, "no gain", "evomal shows no gain over untuned mse: 0.10 (−0.10 to 0.30) over 5 seeds; keep untuned mse"),
        (WORSE, "worse", "evomal is worse than untuned mse by 0.3 ± 0.2 over 5 seeds (won 0 of 5; p = 0.06)"),
        (ONE_SEED, "undecided", TOO_FEW),
    ],
)
def test_to_beat_a_baseline_that_tuning_made_worse_is_no_gain(to_untuned, kind, words):
    evidence = Evidence(EVEN, BETTER, None, 0.03, None, WORSE, to_untuned)
    found = verdict(evidence, name="evomal", baseline_name="mse", unit="")
    assert found.kind == kind
    assert found.sentence.startswith(f"{BEATS_TUNED}, which tuning made worse; evomal ")
    assert found.sentence.endswith(words)
    for still in (Evidence(EVEN, BETTER, None, 0.03, None, WORSE, BETTER), Evidence(EVEN, BETTER, tuning=EVEN)):
        assert verdict(still, name="evomal", baseline_name="mse", unit="").kind == "gain"


def test_who_is_ahead_as_it_is_and_tuned_needs_no_excuse():
    evidence = Evidence(BETTER, BETTER, BETTER, 0.03, BETTER)
    found = verdict(evidence, name="evomal", baseline_name="mse", unit="")
    assert found == Verdict("gain", f"{BEATS_TUNED}: the gain does not come from the learning rate")


def test_a_tuned_rate_that_is_not_known_is_not_named():
    assert learning_rate_words(Evidence(BETTER, EVEN), baseline_name="mse") == (
        "the gain comes at least in part from the learning rate: with both tuned, no difference is shown, "
        "0.10 (−0.10 to 0.30); use mse at its tuned learning rate"
    )


def test_tuned_weight_decay_is_named_as_a_cause_and_in_the_advice():
    words = learning_rate_words(Evidence(BETTER, EVEN, None, 0.03, tuned_decay=0.005), baseline_name="mse")
    assert words.startswith("the gain comes at least in part from the learning rate or the weight decay: with both")
    assert words.endswith("; use mse with lr 0.03 and weight decay 0.005")
    gain = Evidence(BETTER, BETTER, BETTER, 0.03, tuned_decay=0.005)
    found = verdict(gain, name="evomal", baseline_name="mse", unit="")
    assert found.sentence == f"{BEATS_TUNED}: the gain does not come from the learning rate or the weight decay"
    alone = Evidence(EVEN, BETTER, None, 0.03, tuned_decay=0.005)
    found = verdict(alone, name="evomal", baseline_name="mse", unit="")
    assert found.sentence.endswith("but only at its own tuned learning rate and weight decay")


def test_the_learning_rate_is_written_as_a_person_would():
    words = [learning_rate_words(Evidence(BETTER, EVEN, None, rate), baseline_name="ce") for rate in (0.1, 3e-4, 1.0)]
    assert [text.split("lr ")[1] for text in words] == ["0.1", "0.0003", "1"]


def test_a_verdict_from_costs_to_sentence():
    learned = [0.0101, 0.0120, 0.0111, 0.0099, 0.0133]
    plain, tuned = [0.0203, 0.0205, 0.0201, 0.0199, 0.0210], [0.0108, 0.0118, 0.0110, 0.0107, 0.0126]
    evidence = Evidence(paired(learned, plain), paired(learned, tuned), None, 0.1)
    assert verdict(evidence, name="evomal", baseline_name="cross-entropy", unit="points") == Verdict(
        "learning rate",
        "evomal beats cross-entropy by 0.91 ± 0.13 points over 5 seeds (won 5 of 5; p = 0.06), "
        "but the gain comes at least in part from the learning rate: with both tuned, no difference is shown, "
        "−0.010 points (−0.094 to 0.074); use cross-entropy with lr 0.1",
    )


@pytest.mark.parametrize(
    ("found", "unit", "expected"),
    [
        (
            comparison(-0.004, -0.006, -0.002, n=10, wins=9, p=0.00390625),
            "points",
            "a beats b by 0.4 ± 0.2 points over 10 seeds (won 9 of 10; p = 0.004)",
        ),
        (
            comparison(0.031, 0.017, 0.045, wins=0, p=0.0625),
            "",
            "a is worse than b by 0.031 ± 0.014 over 5 seeds (won 0 of 5; p = 0.06)",
        ),
        (
            comparison(-0.001, -0.01, 0.008),
            "",
            "a shows no gain over b: −0.0010 (−0.0100 to 0.0080) over 5 seeds; keep b",
        ),
        (
            comparison(-0.0001, -0.00421, 0.00201),
            "points",
            "a shows no gain over b: −0.01 points (−0.42 to 0.20) over 5 seeds; keep b",
        ),
        (
            comparison(-0.00001, -0.5, 0.4),
            "nats",
            "a shows no gain over b: 0.00 nats (−0.50 to 0.40) over 5 seeds; keep b",
        ),
        (comparison(0.0, 0.0, 0.0), "points", "a shows no gain over b: the same in all 5 seeds; keep b"),
        (
            comparison(-0.02, -0.02, -0.02, **SURE),
            "points",
            "a beats b by 2.0 points over 5 seeds (won 5 of 5; p = 0.06)",
        ),
        (
            comparison(-1234.0, -1800.0, -900.0, **SURE),
            "",
            "a beats b by 1200 ± 400 over 5 seeds (won 5 of 5; p = 0.06)",
        ),
        (
            comparison(-4e-9, -6e-9, -2e-9, **SURE),
            "",
            "a beats b by 4e-09 ± 2e-09 over 5 seeds (won 5 of 5; p = 0.06)",
        ),
        (
            comparison(3e9, 1e9, 5e9, **SURE),
            "",
            "a is worse than b by 3e+09 ± 2e+09 over 5 seeds (won 5 of 5; p = 0.06)",
        ),
        (
            comparison(3.2e9, 3e9, 3.4e9, **SURE),
            "",
            "a is worse than b by 3.2e+09 ± 2e+08 over 5 seeds (won 5 of 5; p = 0.06)",
        ),
        (
            comparison(-0.3, -1.7, -0.004, **SURE),
            "points",
            "a beats b by 30 points (0.4 to 170) over 5 seeds (won 5 of 5; p = 0.06)",
        ),
        (
            comparison(0.31, 0.03, 0.59, **SURE),
            "",
            "a is worse than b by 0.3 (0.03 to 0.6) over 5 seeds (won 5 of 5; p = 0.06)",
        ),
        (
            comparison(0.25, None, None, n=1, wins=1, p=1.0),
            "points",
            f"a differs from b by 25 points over 1 seed (won 1 of 1; p = 1), {TOO_FEW}",
        ),
        (
            comparison(0.0, None, None, n=1, wins=1, p=1.0),
            "",
            f"a differs from b by 0.0 over 1 seed (won 1 of 1; p = 1), {TOO_FEW}",
        ),
    ],
)
def test_a_difference_has_the_digits_its_interval_warrants(found, unit, expected):
    assert difference_words("a", "b", found, unit=unit) == expected


@pytest.mark.parametrize(
    ("p", "expected"),
    [
        (1.0, "p = 1"),
        (0.375, "p = 0.38"),
        (0.0625, "p = 0.06"),
        (0.0501, "p = 0.0501"),
        (0.0488, "p = 0.0488"),
        (0.03125, "p = 0.03"),
        (0.0039, "p = 0.004"),
        (0.00098, "p < 0.001"),
    ],
)
def test_p_is_rounded_but_never_across_five_percent(p, expected):
    assert f"over 5 seeds (won 3 of 5; {expected})" in difference_words("a", "b", comparison(-3, -4, -2, p=p), unit="")


def test_who_diverged_is_said_with_the_count_of_seeds():
    lost = math.inf
    cases = [
        ([lost, 1.0, 2.0], [5.0, 4.0, 7.0]),
        ([1.0, 2.0, 3.0], [lost] * 3),
        ([lost] * 2, [lost] * 2),
        ([lost], [1.0]),
    ]
    assert [difference_words("a", "b", paired(*case), unit="") for case in cases] == [
        "a diverged in 1 of 3 seeds, b in none (a won 2 of 3; p = 1)",
        "b diverged in 3 of 3 seeds, a in none (a won 3 of 3; p = 0.25)",
        "a diverged in 2 of 2 seeds, b in 2 (a won 0 of 2; p = 1)",
        "a diverged in 1 of 1 seed, b in none (a won 0 of 1; p = 1)",
    ]


def test_searches_are_called_searches():
    found = Paired(5, -0.3, -0.5, -0.1, 0.0625, "Wilcoxon", 5, 0, 0, noun="search")
    assert difference_words("evomal", "mse", found, unit="") == (
        "evomal beats mse by 0.3 ± 0.2 over 5 searches (won 5 of 5; p = 0.06)"
    )
    alone = Paired(1, -0.3, None, None, 1.0, "sign", 1, 0, 0, noun="search")
    assert "over 1 search (won 1 of 1; p = 1), too few to decide" in difference_words("evomal", "mse", alone, unit="")


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 6, 10])
@pytest.mark.parametrize("effect", [-3.0, -1.0, 0.0, 1.0, 3.0])
def test_no_claim_is_stronger_than_what_it_rests_on(n, effect):
    """Over many comparisons of each size: what is said of them, against their intervals and p."""
    rng = np.random.default_rng(n)
    kinds = Counter()
    for _ in range(24):
        base = rng.normal(10, 1, n)
        plain, tuned, rescaled = (
            paired(base + shift * effect + 0.8 * rng.normal(size=n), base, resamples=500) for shift in (1.0, 0.6, 0.3)
        )
        found = verdict(Evidence(plain, tuned, rescaled, 0.1), name="a", baseline_name="b", unit="")
        kinds[found.kind] += 1
        sentence = found.sentence
        if n < 5:
            assert found.kind == "undecided"
            assert sentence.endswith(TOO_FEW)
            assert f"over {n} seed" in sentence
            assert n == 1 or " to " in sentence  # the interval
            assert not any(word in sentence for word in ("beats", "worse", "gain", "better"))
            continue
        if "beats b" in sentence:
            assert plain.high < 0
            assert plain.p <= 0.0625
        if "beats tuned b" in sentence:
            assert tuned.high < 0
            assert tuned.p <= 0.0625
        if "worse than tuned b" in sentence:
            assert tuned.low > 0
            assert tuned.p <= 0.0625
        if "from the learning rate: with both tuned" in sentence:
            assert tuned.low > plain.difference
        if "shows no gain over tuned b" in sentence:
            assert tuned.low <= 0 <= tuned.high
        if "it disappears when the gradient is rescaled" in sentence:
            assert rescaled.low > plain.difference
    if n >= 5 and effect == -3.0:
        assert kinds["gain"] > 12
    if n >= 5 and effect == 3.0:
        assert kinds["worse"] > 12


def test_three_seeds_that_agree_are_too_few_to_tell():
    found = verdict(
        Evidence(paired([1.2, 1.3, 1.25], [1.0, 1.1, 1.06])), name="huber", baseline_name="mse", unit=""
    )  # fmt: skip
    assert found.kind == "undecided"
    assert found.sentence == (
        "huber differs from mse by 0.197 (0.142 to 0.207) over 3 seeds (won 0 of 3; p = 0.25), too few to decide: "
        "at least 5 are needed"
    )
