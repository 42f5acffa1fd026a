"""Finals: who takes part, with which seeds, who wins, and whether a lead is one."""

import math
from dataclasses import replace

import pytest
from scipy import stats

from evomal.runs.finals import Final, best_distinct, final_of, final_seeds, final_so_far
from evomal.runs.leads import Scores
from evomal.runs.rows import RecordedTrial
from tests.figures.records import row


def trial(loss, seed, score):
    return RecordedTrial(stage="final", loss=loss, seed=seed, score=score, sentence="trained")


def final(own, rivals):
    return Final(tuple((row(0, place, 1.0), Scores(values)) for place, values in enumerate(own)), {
        name: Scores(values) for name, values in rivals.items()
    })  # fmt: skip


def test_means_and_deviations():
    scores = Scores((1.0, 2.0, 4.0))
    assert scores.mean == pytest.approx(7 / 3)
    assert scores.deviation == pytest.approx(math.sqrt(7 / 3))
    assert math.isnan(Scores((1.0,)).deviation)
    assert Scores((1.0, math.inf)).mean == math.inf
    assert math.isnan(Scores((1.0, math.inf)).deviation)


def test_seeds_are_fresh_whatever_the_search_s():
    assert final_seeds(3, 0) == [3000, 3001, 3002]
    assert final_seeds(3, 3001) == [3000, 3002, 3003]


def test_the_best_distinct_ones_that_were_trained_take_part():
    rows = [
        row(0, 0, 0.5, genome="abs(sub(y, f))", weights=(1.0, 1.0, 1.0)),
        row(0, 1, 0.1, "cached"),
        row(0, 2, 0.2, genome="mse"),
        row(0, 3, 0.4, genome="square(sub(y, f))", weights=(1.0, 1.0, 1.0)),
        row(1, 0, 0.4, genome="square(sub(y, f))", weights=(1.0, 1.0, 1.0), origin="elite"),
        row(1, 1, 0.4, genome="tanh(square(sub(y, f)))", weights=(1.0,) * 4),
        row(1, 2),
        row(1, 3, 0.6, genome="network", weights=(1.0,)),
        row(2, 0, 0.7, genome="network", weights=(2.0,)),
    ]
    found = best_distinct(rows, without=["mse"])
    # Of equal fitness the smaller first; the elite is the same loss, the networks are two.
    assert [(one.generation, one.index) for one in found] == [(0, 3), (1, 1), (0, 0), (1, 3), (2, 0)]


def test_the_least_mean_wins_and_the_search_s_favourite_among_equals():
    found = final([(3.0, 3.0), (1.0, 2.0), (2.0, 1.0)], {"mse": (2.0, 2.0), "mae": (9.0, 9.0)})
    assert found.winner[0].index == 1
    assert found.best_rival[0] == "mse"
    assert final([(1.0, math.inf), (8.0, 8.0)], {"mse": (2.0, 2.0)}).winner[0].index == 1


def test_a_lead_is_one_only_where_its_whole_interval_is():
    # Differences 0.1, 0.2, 0.3: mean 0.2, deviation 0.1, and Student's quantile for two degrees of freedom 4.3027.
    close = final([(1.0, 1.0, 1.0)], {"mse": (1.1, 1.2, 1.3)})
    assert close.lead == pytest.approx((0.2, 4.302652729911275 * 0.1 / math.sqrt(3)))
    assert close.verdict() == "no lead over mse"
    clear = final([(1.0, 1.0, 1.0)], {"mse": (2.0, 2.01, 1.99), "mae": (1.5, 1.51, 1.49)})
    assert clear.verdict() == "beats mae by 0.5 ± 0.025 on validation"
    assert clear.verdict("error_rate") == "beats mae by 50.00 ± 2.48 points on validation"
    assert final([(2.0, 2.0, 2.0)], {"mse": (1.0, 1.0, 1.0)}).verdict() == "no lead over mse"
    assert final([(1.0,)], {"mse": (2.0,)}).verdict() == "no lead over mse", "one seed tells no lead"
    lost = final([(math.inf, 1.0)], {"mse": (2.0, 2.0)})
    assert lost.verdict() == "no lead over mse: training with the learned loss diverged"
    assert final([(1.0, 1.0)], {"mse": (2.0, math.inf)}).verdict() == "no lead over mse"


def diverged(count, cost=1.0):
    """Fifteen scores, the first of which are of trainings that diverged."""
    return Scores((math.inf,) * count + (cost,) * (15 - count))


@pytest.fixture
def drawn():
    found = final([(1.0, 1.0)], {"mse": (2.0, 2.0), "mae": (1.0, 1.0)})
    return replace(found, rates={"mse": 10.0, "mae": 1.0}, lr=0.01)


def test_of_known_losses_the_one_that_diverged_more_often_is_not_advised(drawn):
    found = replace(drawn, last=(diverged(0), diverged(0), diverged(2)))
    assert found.verdict() == "no lead over mae on 15 further seeds: use mae with lr 0.01"
    found = replace(drawn, last=(diverged(0), diverged(5), diverged(0)))
    assert found.verdict() == "no lead over mae, which diverged with 5 of 15 further seeds: use mse with lr 0.1"
    found = replace(drawn, last=(diverged(0), diverged(2), diverged(2, 3.0)))
    assert found.verdict().endswith("on 15 further seeds: use mse with lr 0.1 (it diverged with 2 of them)")
    assert (found.advised_lr, found.advised_rate) == (0.1, 10.0)


def test_where_the_advised_loss_diverged_a_lower_rate_is_advised_that_did_not(drawn):
    found = replace(drawn, last=(diverged(0), diverged(2), diverged(2, 3.0)), lower_rates={"mse": 3.162, "mae": 0.1})
    expected = "use mse with lr 0.0316 (it diverged at lr 0.1 with 2 of 15 further seeds)"
    assert found.verdict().endswith(f"on 15 further seeds: {expected}")
    assert found.advised_lr == pytest.approx(0.03162)
    whole = replace(found, last=(diverged(0), diverged(0), diverged(0, 3.0)))
    assert (whole.advised, whole.advised_rate) == ("mae", 1.0), "nothing diverged"


def test_the_lower_rate_is_one_that_was_trained_in_the_final_and_did_not_diverge():
    def at(rate, cost, **named):
        return [replace(trial("mse", seed, cost), rate=rate, **named) for seed in (3000, 3001)]

    trials = [*at(1.0, 1.0), *at(0.3, 2.0), *at(0.1, 3.0), *at(3.0, 4.0), *at(0.5, 1.0, stage="rates")]
    assert final_so_far([], trials).lower_rates == {"mse": 0.3}
    lost = [*at(1.0, 1.0), *at(0.3, math.inf)]
    assert final_so_far([], lost).lower_rates == {}


@pytest.mark.parametrize(
    ("last", "leads"),
    [
        ((diverged(0), diverged(6), diverged(1)), True),
        ((diverged(0), diverged(5), diverged(1)), False),
        ((diverged(0, 1.1), diverged(6), diverged(6)), False),  # behind where both were trained
        ((diverged(0), diverged(6), diverged(0, 0.9)), False),  # behind the baseline
        ((diverged(1), diverged(15), diverged(15)), True),
        ((Scores((1.0,) * 14 + (math.inf,)), diverged(6), diverged(15)), False),  # each diverges alone
    ],
)
def test_a_loss_leads_one_that_diverges_more_often_for_certain(drawn, last, leads):
    found = replace(drawn, last=last)
    assert found.leads is leads
    expected = f"beats mae, which diverged with {last[1].diverged} of 15 further seeds"
    assert (found.verdict() == expected) is leads


@pytest.mark.parametrize(
    ("last", "leads"),
    [
        ((diverged(0, 0.5), diverged(1), diverged(0)), True),
        ((diverged(0, 0.5), diverged(1), diverged(0, 0.4)), False),  # behind the baseline
        ((diverged(1, 0.5), diverged(2), diverged(0)), False),  # diverged itself
        ((Scores((0.5, 1.6) * 7 + (0.5,)), diverged(1), diverged(0)), False),  # not certain on the others
    ],
)
def test_seeds_with_which_only_the_rival_diverged_are_left_out(drawn, last, leads):
    found = replace(drawn, last=last)
    assert found.leads is leads
    words = "beats mae by 0.5 ± 0 on validation over 14 of 15 further seeds; mae diverged with the other"
    assert found.verdict().startswith(words) is leads


def test_seeds_that_are_left_out_are_named_without_further_seeds_too():
    found = final([(1.0, 1.0, 1.0)], {"mse": (2.0, 2.0, math.inf)})
    words = "beats mse by 1 ± 0 on validation over 2 of 3 fresh seeds; mse diverged with the other"
    assert found.verdict() == words


def test_a_winner_that_diverged_does_not_lead(drawn):
    last = diverged(0, 0.1), diverged(0), diverged(0)
    lost = replace(drawn, candidates=((row(0, 0, 1.0), Scores((1.0, math.inf))),), last=last)
    assert not lost.leads
    assert lost.verdict() == "no lead over mae: training with the learned loss diverged"


def test_the_verdict_says_why_it_advises_against_the_best_rival():
    rates, worse, better = {"mse": 1.0, "mae": 10.0}, Scores((2.0, 2.1, 2.2)), Scores((1.0, 1.1, 1.2))
    drawn = final([(1.0, 1.0)], {"mse": (2.0, 2.0), "mae": (1.0, 1.0)})
    undecided = replace(drawn, rates=rates, lr=0.01, last=(better, better, better))
    assert undecided.verdict() == "no lead over mae, which has none over mse, on 3 further seeds: use mse with lr 0.01"
    better_rival = replace(drawn, rates=rates, lr=0.01, last=(better, better, worse))
    assert better_rival.verdict() == "no lead over mae on 3 further seeds: use mae with lr 0.1"


def test_the_verdict_says_on_how_many_further_seeds_a_lead_was_measured():
    """Its scores on the seeds by which it was chosen may be worse than the rival's."""
    last = (Scores((1.0, 1.5, 2.0)), Scores((2.0, 2.5, 3.0)), Scores((2.0, 2.5, 3.0)))
    found = replace(final([(2.5, 2.5)], {"mse": (2.0, 2.0)}), rates={"mse": 1.0, "0:0": 1.0}, last=last)
    use = "use the learned loss with lr 0.01"
    assert replace(found, lr=0.01).verdict() == f"beats mse by 1 ± 0 on validation over 3 further seeds: {use}"


def test_a_loss_takes_part_at_the_better_of_its_learning_rates():
    """Two seeds may choose a learning rate at which a training with a further seed diverges."""
    rows, seeds = [row(0, 0, 0.5)], (3000, 3001)
    costs = {
        ("mse", 10.0): (0.2, math.inf),
        ("mse", 3.0): (0.4, 0.5),
        ("0:0", 1.0): (0.3, 0.3),
        ("0:0", 0.3): (0.4, 0.4),
    }
    trials = [
        replace(trial(loss, seed, score), rate=rate)
        for (loss, rate), row in costs.items()
        for seed, score in zip(seeds, row, strict=True)
    ]  # fmt: skip
    found = final_so_far(rows, trials)
    assert found.rates == {"mse": 3.0, "0:0": 1.0}
    assert found.rivals == {"mse": Scores((0.4, 0.5))}
    assert found.winner == (rows[0], Scores((0.3, 0.3)))
    worse = [replace(one, score=math.inf) if (one.loss, one.seed) == ("mse", 3000) else one for one in trials]
    assert final_so_far(rows, worse).rates["mse"] == 3.0, "the other diverged with both seeds"


NO_LEAD, UNSURE, SURE = (0.1, 0.1, 0.1, 0.1, 0.1, 9.0), (0.7, 0.8, 0.9, 0.6, 0.9, 1.0), (0.7, 0.8, 0.9, 0.6, 0.9, 0.8)


@pytest.mark.parametrize(
    ("last", "place", "leads"),
    [
        ({"0:0": NO_LEAD}, 0, False),
        ({"0:0": NO_LEAD, "0:1": UNSURE}, 0, False),
        ({"0:0": UNSURE}, 0, True),
        ({"0:0": NO_LEAD, "0:1": SURE}, 1, True),
        ({"0:0": NO_LEAD, "0:1": UNSURE, "0:2": SURE}, 2, True),
        ({"0:0": UNSURE, "0:1": SURE}, 0, True),
        ({"0:0": NO_LEAD, "0:1": SURE[:3]}, 0, False),
        ({"0:0": NO_LEAD, "0:3": SURE}, 0, False),
    ],
)
def test_the_next_best_wins_if_it_leads_more_surely_and_the_best_does_not(last, place, leads):
    """One of six trainings of the best fails; a lead of 0.2 is sure at 95 % only, or with less noise at 99 %, too."""
    rows, means = [row(0, index, 0.5) for index in range(5)], (0.1, 0.2, 0.3, 0.4, 1.5)
    trials = [trial("mse", seed, 1.0) for seed in (3000, 3001)]
    trials += [trial(one.place, seed, mean) for one, mean in zip(rows, means, strict=True) for seed in (3000, 3001)]
    trials += [replace(one, stage="rates") for one in trials]
    trials += [
        replace(trial(loss, 4000 + index, score), stage="lead")
        for loss, row in {"mse": (1.0,) * 6, **last}.items()
        for index, score in enumerate(row)
    ]  # fmt: skip
    found = final_of(rows, trials, seeds=2)
    assert found.winner[0] == rows[place]
    assert found.leads is leads
    assert found.last[0] == Scores(last[f"0:{place}"])
    words = {0: "beats mse", 1: "the second best candidate beats mse", 2: "the third best candidate beats mse"}
    assert found.verdict().startswith(words[place] if leads else "no lead over mse")
    assert found.runners_up == ["0:1", "0:2"]


def with_rows(half, costs):
    """Scores of fifteen seeds whose costs without either half of the rows are `half` above and below."""
    return Scores(tuple(costs), tuple((cost - half, cost + half) for cost in costs))


@pytest.mark.parametrize(
    ("half", "with_others", "is_sure"), [(0.01, "0.13", True), (0.04, "0.51", True), (0.2, "2.5", False)]
)
def test_what_other_rows_would_show_is_said_beside_a_lead_and_does_not_decide_it(drawn, half, with_others, is_sure):
    """Two halves give a standard error of `half`, and Student's quantile for one degree of freedom is 12.706."""
    costs = [1.0 + 0.01 * (seed % 3) for seed in range(15)]
    other = with_rows(0.0, [2.0] * 15)
    found = replace(drawn, last=(with_rows(half, costs), other, other), rates={**drawn.rates, "0:0": 1.0})
    assert found.lead == pytest.approx((0.99, stats.t.ppf(0.975, 14) * 0.00845154 / math.sqrt(15)), rel=1e-4)
    assert found.lead_on_other_rows[1] == pytest.approx(12.7062 * half, rel=1e-2)
    assert found.leads
    assert found.may_depend_on_rows is not is_sure
    assert found.verdict() == (
        f"beats mae by 0.99 ± 0.0047 on validation (± {with_others} with other rows) over 15 further seeds: "
        "use the learned loss with lr 0.01"
    )
    unknown = replace(found, last=tuple(Scores(scores.values) for scores in found.last))
    assert unknown.leads
    assert unknown.may_depend_on_rows
    runner_up = replace(found, place=1)  # judged at 99 %: the quantile is 63.657
    assert runner_up.may_depend_on_rows is (half > 0.01)


def test_only_candidates_with_a_lower_mean_than_the_best_rival_are_tried():
    found = final([(1.0, 1.0), (3.0, 3.0), (1.5, 1.5)], {"mse": (2.0, 2.0)})
    assert found.runners_up == ["0:2"]


def test_a_final_is_read_back_once_it_is_complete():
    rows = [row(0, 0, 0.5), row(1, 0, 0.4)]
    trials = [trial(loss, seed, score) for seed in (3000, 3001) for loss, score in (("mse", 1.0), ("1:0", 0.5))]
    found = final_of(rows, trials, seeds=2)
    assert found.winner == (rows[1], Scores((0.5, 0.5)))
    assert found.rivals == {"mse": Scores((1.0, 1.0))}
    assert final_of(rows, trials[:2], seeds=2) is None
    assert final_of(rows, [], seeds=2) is None
    assert final_of([], trials, seeds=2) is None, "a stranger's, whose candidates are not there"
