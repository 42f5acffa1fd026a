"""Which learning rates are tried, against costs that are known at every rate."""

import itertools
import math

import pytest

from evomal.engine import Score
from evomal.verdict.comparison import Comparison, Entry, Trained
from evomal.verdict.contestants import given_contestant
from evomal.verdict.tables import comparison_markdown
from evomal.verdict.tuning import TUNING_SEEDS, found_rates, settling_seeds, tried_rates, tuned
from tests.engine.populations import regression

TASK = regression()
SEEDS = 5
SETTLING_SEEDS = settling_seeds(SEEDS)
SEEDS_NEAR_DIVERGENCE = range(SETTLING_SEEDS.stop, TUNING_SEEDS[0] + 40)
BASELINE, OTHER = (given_contestant(name, TASK).losses[0] for name in ("mse", "mae"))


class KnownTrials:
    """Every loss has a best rate; the cost is the distance to it in powers of ten."""

    own_lr = 0.01

    def __init__(self, best, *, diverging_from=math.inf):
        self.best, self.diverging_from = best, diverging_from
        self.trained, self.settled, self.settled_near_divergence, self.further = [], [], [], 0

    def expect(self, trainings):
        self.further += trainings

    def run(self, trials):
        assert not any(trial.test for trial in trials)
        stages = {TUNING_SEEDS: self.trained, SETTLING_SEEDS: self.settled}
        stages[SEEDS_NEAR_DIVERGENCE] = self.settled_near_divergence
        assert {trial.seed for trial in trials} in map(set, stages)
        for seeds, found in stages.items():
            found += [(trial.compared.identity, trial.lr) for trial in trials if trial.seed == seeds[0]]
        return {trial: self.score(trial) for trial in trials}

    def score(self, trial):
        cost = abs(math.log10(trial.lr / self.best[trial.compared.identity]))
        outcome = "diverged" if trial.lr >= self.diverging_from else "trained"
        return Score(math.nan, cost, {}, [], seed=trial.seed, steps=1, outcome=outcome)


def rates_of(best, number=5, **options):
    trials = KnownTrials({BASELINE.identity: best, OTHER.identity: 0.01}, **options)
    found = tuned([BASELINE, OTHER], BASELINE, trials, number, TASK, seeds=SEEDS)
    assert sorted(trials.trained) == sorted(
        (loss.identity, rate) for loss in (BASELINE, OTHER) for rate in found.rates
    )  # each once, and the same ones for both
    # Trainings that could not be counted before: two losses with two seeds, and the best ones with eight more, or 38.
    settled = 8 * len(trials.settled) + 30 * len(trials.settled_near_divergence)
    assert trials.further == 2 * 2 * (len(found.rates) - number) + settled
    assert len(trials.settled) == len(set(trials.settled))
    assert set(trials.settled) >= {(key, best.lr) for key, best in found.best.items() if number > 1}
    return found.rates, found.best[BASELINE.identity].lr


@pytest.mark.parametrize(("seeds", "in_all"), [(1, 5), (3, 6), (5, 10), (10, 20), (1000, 40)])
def test_the_best_rate_is_tried_with_twice_the_seeds_of_the_comparison(seeds, in_all):
    every = [*TUNING_SEEDS, *settling_seeds(seeds)]
    assert every == list(range(TUNING_SEEDS[0], TUNING_SEEDS[0] + in_all))


def test_the_rates_tried_are_spaced_by_their_ratio():
    assert tried_rates(0.01, 1) == [0.01]
    assert tried_rates(0.01, 3) == [0.001, 0.01, 0.1]
    assert tried_rates(0.01, 5) == [0.001, 0.003162, 0.01, 0.03162, 0.1]


def test_a_best_within_the_rates_ends_it():
    assert rates_of(0.03) == ((0.001, 0.003162, 0.01, 0.03162, 0.1), 0.03162)


def test_rates_are_added_while_the_baseline_s_best_is_at_an_end():
    rates, best = rates_of(0.3)
    assert rates == pytest.approx((0.001, 0.003162, 0.01, 0.03162, 0.1, 0.3162, 1.0), rel=1e-3)
    assert best == pytest.approx(0.3162, rel=1e-3)
    rates, best = rates_of(1e-4, number=3)
    assert rates == pytest.approx((1e-5, 1e-4, 1e-3, 1e-2, 1e-1))
    assert best == pytest.approx(1e-4)


def test_rates_are_added_while_the_best_of_all_is_at_an_end():
    trials = KnownTrials({BASELINE.identity: 0.02, OTHER.identity: 0.12})
    found = tuned([BASELINE, OTHER], BASELINE, trials, 5, TASK, seeds=SEEDS)
    assert found.rates == pytest.approx((0.001, 0.003162, 0.01, 0.03162, 0.1, 0.3162), rel=1e-3)
    assert found.best[OTHER.identity].lr == 0.1
    # A loss that is neither the baseline nor the best may be left there.
    trials = KnownTrials({BASELINE.identity: 0.01, OTHER.identity: 1e6})
    assert tuned([BASELINE, OTHER], BASELINE, trials, 5, TASK, seeds=SEEDS).rates[-1] == 0.1


def test_it_ends_after_four_more():
    rates, best = rates_of(1e6)
    assert len(rates) == 9
    assert best == rates[-1] == pytest.approx(10, rel=1e-3)


def test_a_rate_at_which_it_diverges_is_an_end_that_holds():
    rates, best = rates_of(1e6, diverging_from=0.3)
    assert best == 0.1
    assert rates[-1] == pytest.approx(0.3162, rel=1e-3)


class EdgeTrials(KnownTrials):
    """Where two seeds find a rate the best, others fail: at 0.1 with every further seed, at 0.03162 with one."""

    def score(self, trial):
        fails = {0.1: SETTLING_SEEDS, 0.03162: SETTLING_SEEDS[-1:]}.get(trial.lr, ())
        if trial.seed in fails:
            return Score(math.nan, 90.0, {}, [], seed=trial.seed, steps=1)
        return super().score(trial)


def test_a_rate_at_which_further_seeds_fail_is_not_chosen():
    trials = EdgeTrials({BASELINE.identity: 0.01, OTHER.identity: 0.1})
    found = tuned([BASELINE, OTHER], BASELINE, trials, 5, TASK, seeds=SEEDS)
    assert found.best == {BASELINE.identity: (0.01, 1.0), OTHER.identity: (0.01, 1.0)}
    assert trials.settled == [
        (BASELINE.identity, 0.01), (OTHER.identity, 0.1), (OTHER.identity, 0.03162), (OTHER.identity, 0.01),
    ]  # fmt: skip
    # The baseline's best may come to lie at an end only then.
    found = tuned([BASELINE], BASELINE, EdgeTrials({BASELINE.identity: 0.06}), 3, TASK, seeds=SEEDS)
    assert found.rates == (0.001, 0.01, 0.1)
    assert found.best == {BASELINE.identity: (0.01, 1.0)}


class RareDivergence(KnownTrials):
    """Training diverges at 0.06 with every seed, at 0.03 with a late one, and at lower rates with none."""

    def score(self, trial):
        loses = trial.lr >= 0.05 or (trial.lr >= 0.03 and trial.seed == SEEDS_NEAR_DIVERGENCE[-1])
        self.diverging_from = 0.0 if loses else math.inf
        return super().score(trial)


def test_where_a_higher_rate_diverges_many_seeds_settle_the_best_one():
    trials = RareDivergence({BASELINE.identity: 0.04, OTHER.identity: 0.001})
    found = tuned([BASELINE, OTHER], BASELINE, trials, 9, TASK, seeds=SEEDS)
    assert found.best == {BASELINE.identity: (0.01778, 1.0), OTHER.identity: (0.001, 1.0)}
    # 0.05623 is near 0.03162 and 0.01778; the other loss diverges there, too, far from its best rate.
    assert trials.settled_near_divergence == [(BASELINE.identity, 0.03162), (BASELINE.identity, 0.01778)]


@pytest.mark.parametrize(("number", "rate"), [(3, 1.0), (5, 0.3162), (9, 0.1778), (9, 0.3161), (9, 1.0)])
def test_a_rate_that_a_search_found_may_be_the_next_one_beyond_an_end(number, rate):
    learned = given_contestant("mae", TASK).losses[0]
    learned.loss.provenance = {"learning_rate": rate}
    trials = KnownTrials({BASELINE.identity: 1e6, learned.identity: 0.01})
    found = tuned([BASELINE, learned], BASELINE, trials, number, TASK, seeds=SEEDS)
    assert len(found.rates) == number + 4
    assert all(later > 1.1 * earlier for earlier, later in itertools.pairwise(found.rates))
    assert len(set(trials.trained)) == len(trials.trained)
    assert trials.further == 2 * 2 * 4 + 8 * len(trials.settled)


def test_a_procedure_shares_the_trainings_that_settle_its_loss():
    stopped = given_contestant("mse+early-stopping", TASK).losses[0]
    trials = KnownTrials({BASELINE.identity: 0.01, OTHER.identity: 0.02})
    found = tuned([BASELINE, stopped, OTHER], BASELINE, trials, 5, TASK, seeds=SEEDS)
    assert found.best[stopped.key] == found.best[BASELINE.key] == (0.01, 1.0)
    assert trials.further == 8 * 2  # two losses with eight seeds each
    assert [rate for identity, rate in trials.settled if identity == BASELINE.identity] == [0.01, 0.01]


class DecayTrials(KnownTrials):
    """The best weight decay of each loss is known, too; the best learning rate is higher where there is more of it."""

    def __init__(self, best, decays):
        super().__init__(best)
        self.decays, self.settings = decays, []

    def run(self, trials):
        self.settings += [
            (trial.compared.identity, trial.lr, trial.decay) for trial in trials if trial.seed == TUNING_SEEDS[0]
        ]
        return super().run(trials)

    def score(self, trial):
        key, power = trial.compared.identity, math.log10(trial.decay)
        rate = abs(math.log10(trial.lr / self.best[key]) - power / 4)
        cost = rate + abs(power - self.decays[key])
        return Score(math.nan, cost, {}, [], seed=trial.seed, steps=1)


def test_weight_decay_is_followed_to_its_best_and_the_learning_rate_with_it():
    trials = DecayTrials(
        dict.fromkeys((BASELINE.identity, OTHER.identity), 0.01), {BASELINE.identity: 0, OTHER.identity: 2}
    )
    plain = tuned([BASELINE, OTHER], BASELINE, trials, 9, TASK, seeds=SEEDS)
    assert {setting.decay for setting in plain.best.values()} == {1.0}
    found = tuned([BASELINE, OTHER], BASELINE, trials, 9, TASK, seeds=SEEDS, decays=True)
    assert found.rates == plain.rates
    assert found.best[BASELINE.key] == (0.01, 1.0)
    assert found.best[OTHER.key] == (0.03162, 100.0)
    # Each setting is trained once, and those around the best one have been.
    tried = trials.settings[2 * 9 :]
    assert len(set(tried)) == len(tried)
    around = {
        (OTHER.identity, *setting) for setting in ((0.01778, 100), (0.05623, 100), (0.03162, 10), (0.03162, 1000))
    }
    assert around <= {*tried}
    assert {(BASELINE.identity, 0.01, 10.0), (BASELINE.identity, 0.01, 0.1)} <= {*tried}


def test_weight_decay_is_followed_up_to_a_thousand_times_the_recipe_s():
    trials = DecayTrials({BASELINE.identity: 0.01}, {BASELINE.identity: 9})
    assert tuned([BASELINE], BASELINE, trials, 3, TASK, seeds=SEEDS, decays=True).best[BASELINE.key].decay == 1000.0
    trials = DecayTrials({BASELINE.identity: 0.01}, {BASELINE.identity: -9})
    assert tuned([BASELINE], BASELINE, trials, 3, TASK, seeds=SEEDS, decays=True).best[
        BASELINE.key
    ].decay == pytest.approx(0.01)


def test_rates_that_round_to_the_same_number_are_tried_once():
    rates = tried_rates(0.01, 5000)
    assert len(set(rates)) == len(rates) < 5000


@pytest.mark.parametrize("number", [1, 2])
def test_one_or_two_rates_stay_as_they_are(number):
    assert len(rates_of(1e6, number=number)[0]) == number


def test_a_loss_left_at_an_end_is_pointed_out():
    def trained(*rates):
        score = Score(1.0, 1.0, {"mse": 1.0}, [], seed=1000, steps=1)
        return tuple(Trained("f", rate, 1.0, (score,)) for rate in rates)

    entries = (
        Entry("mse", "tuned", trained(0.01)), Entry("mae", "tuned", trained(0.1)),
        Entry("evomal", "tuned", trained(0.01, 0.001, 0.1)),
    )  # fmt: skip
    comparison = Comparison(
        task="own", record={}, metric="mse", higher_is_better=False, steps=1, milestones=(), seeds=(1000,),
        search_seeds=(0, 1, 2), tune_lr=3, rates=(0.001, 0.01, 0.1), baseline="mse", entries=entries, verdicts={},
    )  # fmt: skip
    text = comparison_markdown(comparison)
    assert "tuned: the best of 3 learning rates from 0.001 to 0.1 on validation" in text
    assert "- mae, tuned: the best learning rate is at an end of the range that was tried" in text
    assert "- evomal, tuned: the best learning rate of 2 of 3 losses is at an end of the range that was tried" in text
    assert "mse, tuned: the" not in text


def test_the_learning_rate_that_a_search_found_is_tried_by_all():
    learned = given_contestant("mae", TASK).losses[0]
    learned.loss.provenance = {"learning_rate": 0.0200001}
    trials = KnownTrials({BASELINE.identity: 0.01, learned.identity: 0.02})
    found = tuned([BASELINE, learned], BASELINE, trials, 3, TASK, seeds=SEEDS)
    assert found.rates == (0.001, 0.01, 0.02, 0.1)
    assert found.best == {BASELINE.identity: (0.01, 1.0), learned.identity: (0.02, 1.0)}
    assert trials.further == 2 * 2 + 8 * 2
    for odd in ("0.1", True, float("nan"), -1.0, None):
        learned.loss.provenance = {"learning_rate": odd}
        assert found_rates([learned]) == []
