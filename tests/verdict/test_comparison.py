"""Comparisons: paired, resumed to the same, honest about what diverged and about learning rates in disguise."""

import json
import math
from dataclasses import replace

import numpy as np
import pytest
import torch

import evomal
from evomal.engine import Score
from evomal.errors import InputError
from evomal.losses import SquaredErrorLoss
from evomal.tasks.parts import Part
from evomal.tasks.recipe import Recipe
from evomal.tasks.task import Task
from evomal.verdict.comparing import compare, rate_curve, transfer
from evomal.verdict.plan import EVALUATION_SEEDS
from evomal.verdict.statistics import paired_searches
from evomal.verdict.tables import comparison_markdown, comparison_text
from evomal.verdict.trials import TrialTrainer
from evomal.verdict.tuning import gradient_norm, matching_factor, tried_rates
from examples.planted import outliers
from tests.engine.populations import ScaledLoss, classification, regression
from tests.protocols import ONE_TRAINING

SHORT = {"device": "cpu", "final_steps": 30}


class Upwards(torch.nn.Module):
    """A loss that drives the outputs away."""

    def forward(self, output, target):
        return -((output - target) ** 4).mean()


def values(comparison, name, variant="plain"):
    return [score.test for loss in comparison.entry(name, variant).losses for score in loss.scores]


def test_every_cell_is_an_ordinary_training_with_a_seed_no_search_has_seen():
    found = compare(regression(), losses=["mae", "huber"], seeds=2, rescale=False, **SHORT)
    assert [entry.name for entry in found.entries] == ["mse", "mae", "huber"]
    assert found.seeds == (EVALUATION_SEEDS, EVALUATION_SEEDS + 1)
    for name in ("mse", "mae", "huber"):
        expected = [evomal.train(regression(), name, seed=seed, steps=30, device="cpu").test for seed in found.seeds]
        assert values(found, name) == pytest.approx(expected, rel=1e-4)
    difference = found.differences["mae", "plain"]
    assert difference.difference == pytest.approx(
        sum(a - b for a, b in zip(values(found, "mae"), values(found, "mse"), strict=True)) / 2
    )


def test_losses_that_searches_found_are_marked_and_compared_with_known_ones():
    learned = evomal.ExpressionLoss(evomal.Expression.parse("square(sub(y, f))"), kind="regression")
    found = compare(regression(), losses=["mae", learned], seeds=2, rescale=False, **SHORT)
    assert [entry.name for entry in found.entries if entry.learned] == ["learned"]
    assert "- beside mae: learned differs from mae by" in comparison_text(found)
    old = found.to_dict()
    for entry in old["entries"]:
        del entry["learned"]
    assert "beside" not in comparison_text(evomal.Comparison.from_dict(old))


def test_rates_are_tuned_on_validation_and_for_every_loss_alike(monkeypatch):
    seen = []
    usual = TrialTrainer.scores

    def noted(self, trials, report=None):
        seen.extend((type(one.compared.loss).__name__, one.lr, one.seed, one.test) for one in trials)
        return usual(self, trials, report)

    monkeypatch.setattr(TrialTrainer, "scores", noted)
    found = compare(regression(), losses=["mae"], seeds=1, tune_lr=3, rescale=False, **SHORT)
    tuning = [entry for entry in seen if not entry[3]]
    assert set(tried_rates(0.05, 3)) <= set(found.rates)
    first = [(name, lr) for name, lr, seed, _ in tuning if seed in (2000, 2001)]
    assert len(first) == 2 * len(found.rates) * 2
    settled = {(name, lr) for name, lr, seed, _ in tuning if seed in (2002, 2003, 2004)}
    assert len(tuning) == len(first) + 3 * len(settled)
    names = {"mse": "SquaredErrorLoss", "mae": "AbsoluteErrorLoss"}
    assert settled >= {
        (names[entry.name], entry.losses[0].lr) for entry in found.entries if entry.variant == "tuned"
    }  # fmt: skip
    assert sorted({lr for name, lr, _, _ in tuning if name == "AbsoluteErrorLoss"}) == list(found.rates)
    assert {seed for _, _, seed, tested in seen if tested} == {1000}
    assert found.tune_lr == 3
    assert [(entry.name, entry.variant) for entry in found.entries] == [
        ("mse", "plain"), ("mae", "plain"), ("mse", "tuned"), ("mae", "tuned"),
    ]  # fmt: skip


def test_weight_decay_is_tuned_where_it_is_asked_for(tmp_path):
    options = {"losses": ["mae"], "seeds": 1, "tune_lr": 3, "rescale": False, "weight_decay": 0.02, **SHORT}
    found = compare(regression(), tune_decay=True, folder=tmp_path, **options)
    assert found.has_tuned_decay
    for name in ("mse", "mae"):
        (plain,), (tuned,) = (found.entry(name, variant).losses for variant in ("plain", "tuned"))
        assert plain.weight_decay is None
        power = math.log10(tuned.weight_decay / 0.02)
        assert power == pytest.approx(round(power), abs=1e-9)
        alone = evomal.train(
            regression(), name, lr=tuned.lr, weight_decay=tuned.weight_decay, seed=1000, steps=30, device="cpu"
        )  # fmt: skip
        assert tuned.scores[0].test == pytest.approx(alone.test, rel=2e-4)
    assert ", and of weight decays in powers of ten, on validation" in comparison_markdown(found).replace("\\", "")
    assert f"decay {found.entry('mse', 'tuned').losses[0].weight_decay:g}" in str(found)
    assert evomal.Comparison.from_dict(found.to_dict()) == found
    assert compare(regression(), tune_decay=True, folder=tmp_path, **options) == found
    without = compare(regression(), **options)
    assert not without.has_tuned_decay
    assert "decay" not in str(without)


def test_the_baseline_takes_part_once_even_if_it_is_asked_for():
    found = compare(regression(), losses=["mse", "mae"], seeds=1, rescale=False, **SHORT)
    assert [entry.name for entry in found.entries] == ["mse", "mae"]


def test_a_learning_rate_in_disguise_is_recognised():
    """Three times the task's loss, where the task's own rate is too small."""
    tripled = ScaledLoss(SquaredErrorLoss(), 3.0)
    found = compare(
        regression(rows=1500), losses=[tripled], seeds=5, tune_lr=5, device="cpu", final_steps=150, lr=0.0005
    )  # fmt: skip
    judged = found.verdicts["ScaledLoss"]
    assert judged.kind == "learning rate"
    assert "from the learning rate: with both tuned, " in judged.sentence
    assert "; use mse with lr" in judged.sentence
    assert all(own < base for own, base in zip(values(found, "ScaledLoss"), values(found, "mse"), strict=True))


def test_intervals_include_the_choice_of_the_test_rows():
    """Two losses that are equally good beyond thirty rows: whatever seeds agree on there is the luck of the rows."""
    found = compare(
        regression(rows=150), losses=["mae"], seeds=5, tune_lr=0, rescale=False, device="cpu", final_steps=100
    )  # fmt: skip
    base, mae = found.entry("mse"), found.entry("mae")
    assert all(len(score.left_out) == 20 for loss in (*base.losses, *mae.losses) for score in loss.scores)
    shown = found.differences["mae", "plain"]
    over_seeds = paired_searches(mae.costs(higher_is_better=False), base.costs(higher_is_better=False)[0])
    assert shown.error_of_rows > 0
    assert shown.low < over_seeds.low < over_seeds.high < shown.high
    assert (shown.difference, shown.p, shown.wins) == (over_seeds.difference, over_seeds.p, over_seeds.wins)
    text = " ".join(str(found).split())
    assert "p is over seeds, all on the same 30 test rows; the intervals also allow for other rows" in text
    assert "95 % interval over seeds and test rows" in comparison_markdown(found).replace("\\", "")
    assert evomal.Comparison.from_dict(found.to_dict()) == found


def test_the_rows_of_a_comparison_of_before_are_not_known():
    found = compare(regression(), losses=["mae"], seeds=2, rescale=False, **SHORT)
    content = found.to_dict()
    for entry in content["entries"]:
        for loss in entry["losses"]:
            for score in loss["scores"]:
                del score["left_out"]
        if entry["difference"] is not None:
            del entry["difference"]["error_of_rows"]
    old = evomal.Comparison.from_dict(content)
    assert found.has_rows
    assert not old.has_rows
    assert old.differences["mae", "plain"].error_of_rows is None
    assert "intervals and p are over seeds" in " ".join(str(old).split())
    assert "95 % bootstrap interval" in comparison_markdown(old)


@pytest.mark.parametrize("is_sorted", [True, False])
def test_validation_rows_that_are_unlike_the_test_rows_are_noted(is_sorted):
    generator = np.random.default_rng(0)
    x = generator.normal(size=(600, 3))
    widths = np.repeat([1.0, 3.0], [400, 200])
    y = x.sum(1) + widths * generator.uniform(-1, 1, size=600)
    order = np.arange(600) if is_sorted else generator.permutation(600)
    parts = [(x[rows], y[rows]) for rows in (order[100:400], order[:100], order[400:])]
    task = Task.from_arrays(
        train=parts[0], validation=parts[1], test=parts[2], kind="regression", model=lambda: torch.nn.Linear(3, 1)
    )
    text = " ".join(str(compare(task, losses=["mae"], seeds=2, rescale=False, **SHORT)).split())
    assert ("on test, a larger difference than rows drawn alike are likely to give" in text) is is_sorted


def test_a_loss_that_is_truly_different_is_not_taken_for_a_learning_rate():
    found = compare(outliers(0), losses=["mae"], seeds=5, tune_lr=3, device="cpu", final_steps=200)
    assert found.verdicts["mae"].kind == "gain"
    assert "the gain does not come from the learning rate" in found.verdicts["mae"].sentence


@pytest.mark.parametrize(("tuned", "is_misled"), [(0.168, True), (0.140, False)])
def test_a_rate_that_validation_prefers_is_not_recommended_where_a_loss_that_is_not_tuned_beats_it(
    monkeypatch, tuned, is_misled
):
    tests = {("SquaredErrorLoss", True): 0.145, ("AbsoluteErrorLoss", True): 0.136}

    def pretended(one):
        name, is_own = type(one.compared.loss).__name__, one.lr == 0.05
        jitter = 0.001 * (one.seed % 3 - 1) * (1 if name == "SquaredErrorLoss" else -1)
        value = tests.get((name, is_own), tuned) + jitter
        validation = 1.0 if is_own else 0.5 + 0.1 * abs(math.log10(one.lr / 0.05) - 1)
        return Score(value if one.test else math.nan, validation, {}, [], one.seed, 30)

    monkeypatch.setattr(TrialTrainer, "scores", lambda self, trials, report=None: [*map(pretended, trials)])
    found = compare(regression(), losses=["mae"], seeds=5, tune_lr=3, rescale=False, **SHORT)
    assert found.entry("mse", "tuned").losses[0].lr != regression().recipe.lr
    assert found.verdicts["mae"].kind == "undecided"
    assert found.verdicts["mae"].sentence.endswith(
        ", and mae also beats tuned mse, but not at the learning rate that validation chose for it: more seeds or more "
        "data are needed to decide"
    )
    markdown = comparison_markdown(found)
    assert ("- tuned mse is worse than untuned mse by 0.02" in markdown) is is_misled
    assert ("on this split, validation is a poor guide to the learning rate" in markdown) is is_misled


def test_no_gain_is_said():
    # One after the other, so that both are computed as modules.
    options = {**SHORT, "losses": [ScaledLoss(SquaredErrorLoss(), 1.0)], "population_mode": "looped"}
    found = compare(regression(), seeds=5, tune_lr=2, **options)
    assert found.verdicts["ScaledLoss"].kind == "no gain"
    assert "no gain over tuned mse: the same in all 5 seeds; keep " in found.verdicts["ScaledLoss"].sentence
    few = compare(regression(), seeds=3, rescale=False, **options)
    assert few.verdicts["ScaledLoss"].sentence == (
        "ScaledLoss is the same as mse in 3 seeds, too few to decide: at least 5 are needed"
    )
    assert compare(regression(), seeds=1, **SHORT).verdicts == {}


def test_a_loss_rescaled_pulls_as_hard_as_the_baseline():
    task, loss = regression(), ScaledLoss(SquaredErrorLoss(), 7.0)
    assert matching_factor(task, loss, SquaredErrorLoss()) == pytest.approx(1 / 7)
    assert gradient_norm(task, loss, seed=5) == pytest.approx(7 * gradient_norm(task, SquaredErrorLoss(), seed=5))
    found = compare(task, losses=[loss], seeds=2, **SHORT)
    assert found.entry("ScaledLoss", "rescaled").losses[0].factor == pytest.approx(1 / 7)
    assert values(found, "ScaledLoss", "rescaled") == pytest.approx(values(found, "mse"), rel=1e-4)


def test_what_diverges_stands_in_the_table_with_its_sentence():
    found = compare(regression(), losses=[Upwards()], seeds=2, tune_lr=2, device="cpu", final_steps=200)
    assert values(found, "Upwards") == [math.inf, math.inf]
    assert found.verdicts["Upwards"].kind == "diverged"
    assert "diverged in 2 of 2 seeds" in found.verdicts["Upwards"].sentence
    shown = comparison_markdown(found)
    assert "| Upwards | 0.05 | diverged |" in shown
    assert "Upwards, plain, seed 1000: the training loss or its gradient was not finite at step" in shown
    assert found.to_dict()["entries"][1]["losses"][0]["scores"][0]["test"] is None
    json.dumps(found.to_dict(), allow_nan=False)


class StoppedError(Exception):
    pass


def test_stopped_and_resumed_it_is_the_same(tmp_path, monkeypatch):
    options = {"losses": ["mae", "huber"], "seeds": 2, "tune_lr": 2, "chunk": 2, **SHORT}
    whole = compare(regression(), folder=tmp_path / "whole", **options)
    usual, left = TrialTrainer.scores, [5]

    def limited(self, trials, report=None):
        left[0] -= len(trials)
        if left[0] < 0:
            raise StoppedError
        return usual(self, trials, report)

    monkeypatch.setattr(TrialTrainer, "scores", limited)
    with pytest.raises(StoppedError):
        compare(regression(), folder=tmp_path / "parts", **options)
    log = tmp_path / "parts" / "trainings.jsonl"
    log.write_bytes(log.read_bytes() + b'["half a line')
    left[0] = 1000
    resumed = compare(regression(), folder=tmp_path / "parts", **options)
    assert left[0] == 1000 - (2 * 3 + 2 * 2 * 3 + 3 * 3 + 2 * 3 + 2 * 2 - 4) + _same_rate_twice(whole)
    assert resumed.to_dict() == whole.to_dict()
    assert (tmp_path / "parts" / "trainings.jsonl").read_bytes() == (
        tmp_path / "whole" / "trainings.jsonl"
    ).read_bytes()


def _same_rate_twice(comparison):
    """Trainings of the tuned variant at the plain rate, which need not be done again."""
    tuned = [loss for entry in comparison.entries if entry.variant == "tuned" for loss in entry.losses]
    return 2 * sum(loss.lr == 0.05 for loss in tuned)


@pytest.mark.parametrize("place", [0.2, 0.6])
def test_a_damaged_log_is_refused_by_its_line(tmp_path, place):
    compare(regression(), losses=["mae"], seeds=2, folder=tmp_path, rescale=False, **SHORT)
    log = tmp_path / "trainings.jsonl"
    content = bytearray(log.read_bytes())
    content[int(place * len(content))] ^= 1
    log.write_bytes(content)
    with pytest.raises(InputError, match=r"trainings\.jsonl: line \d is damaged"):
        compare(regression(), losses=["mae"], seeds=2, folder=tmp_path, rescale=False, **SHORT)
    assert log.read_bytes() == bytes(content)


def test_another_comparison_is_refused_and_more_seeds_are_welcome(tmp_path):
    compare(regression(), seeds=1, folder=tmp_path, **SHORT)
    with pytest.raises(InputError, match=r"belongs to another comparison: steps was 30 but is 31"):
        compare(regression(), seeds=1, folder=tmp_path, **{**SHORT, "final_steps": 31})
    assert len(compare(regression(), seeds=3, folder=tmp_path, **SHORT).seeds) == 3


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda task: replace(task, train=Part(task.train.inputs + 1, task.train.targets)), "data"),
        (lambda task: replace(task, test=Part(task.test.inputs + 1, task.test.targets)), "test_data"),
        (lambda task: replace(task, model=lambda: torch.nn.Linear(4, 1)), "fresh_model"),
    ],
)
def test_scores_of_other_data_or_another_model_are_not_taken_for_its_own(tmp_path, change, what):
    compare(regression(), seeds=1, folder=tmp_path, **SHORT)
    with pytest.raises(InputError, match=f"belongs to another comparison: {what} was"):
        compare(change(regression()), seeds=1, folder=tmp_path, **SHORT)


def test_methods_are_searched_and_judged_search_by_search(tmp_path):
    small = {
        **ONE_TRAINING,
        "population": 5,
        "generations": 2,
        "meta_steps": 2,
        "training_steps": 10,
        "filter_steps": 20,
    }
    found = compare(
        regression(), methods=["gp-lfl", "taylorglo"], seeds=2, search_seeds=3, folder=tmp_path, rescale=False,
        **SHORT, **small,
    )  # fmt: skip
    assert found.search_seeds == (0, 1, 2)
    assert found.differences["taylorglo", "plain"].n == 3
    assert len(found.entry("gp-lfl").losses) == 3
    assert sorted(path.name for path in (tmp_path / "searches").iterdir()) == [
        f"{method}-{seed}" for method in ("gp-lfl", "taylorglo") for seed in range(3)
    ]
    shown = comparison_text(found)
    assert all(len(line) <= 80 for line in shown.splitlines())


def test_a_method_that_finds_nothing_stands_in_the_table(tmp_path):
    small = {
        **ONE_TRAINING,
        "population": 4,
        "generations": 1,
        "meta_steps": 1,
        "training_steps": 3,
        "filter_steps": 3,
        "lr": 1e-30,
    }
    found = compare(regression(), methods=["gp-lfl"], seeds=2, rescale=False, **SHORT, **small)
    assert found.entry("gp-lfl").losses == (None,)
    assert "gp-lfl, plain: the search found no loss that passed its filters" in comparison_markdown(found)
    assert "nothing found" in comparison_text(found)
    assert found.verdicts["gp-lfl"].kind == "no gain"
    assert found.verdicts["gp-lfl"].sentence == "gp-lfl found no loss that passed its filters: keep mse"


def test_shares_are_shown_in_percent_and_points():
    found = compare(classification(), losses=["focal"], seeds=3, rescale=False, **SHORT)
    assert " %" in comparison_text(found)
    assert "points" in found.verdicts["focal"].sentence


def test_losses_trained_together_come_to_what_they_do_alone(tmp_path):
    tree = evomal.ExpressionLoss("abs(sub(y, f))", weights=[1.0, 1.1, 0.9], kind="regression")
    polynomial = evomal.losses.TaylorLoss([0, 0, 0, -2, 0, 2, 0, 0], kind="regression")
    options = {"losses": [tree, polynomial, "huber", "mae"], "seeds": 2, "tune_lr": 2, **SHORT}
    together = compare(regression(), population_mode="stacked", folder=tmp_path, **options)
    alone = compare(regression(), population_mode="looped", **options)
    lines = (tmp_path / "trainings.jsonl").read_text().splitlines()[1:]
    sizes = {len(json.loads(line)[1]["trainings"]) for line in lines}
    assert max(sizes) == 5 * 2 * 2  # all losses at two learning rates with two seeds
    for one, other in zip(together.entries, alone.entries, strict=True):
        assert (one.name, one.variant) == (other.name, other.variant)
        assert values(together, one.name, one.variant) == pytest.approx(values(alone, one.name, one.variant), rel=1e-4)
        assert one.losses[0].factor == other.losses[0].factor
    scores = [entry.losses[0].scores[0] for entry in (together.entries[1], alone.entries[1])]
    assert scores[0].validation == pytest.approx(scores[1].validation, rel=1e-4)
    assert scores[0].metrics.keys() == scores[1].metrics.keys()


LONG = Recipe(lr=0.05, batch_size=32, steps=60, milestones=(40, 54))


@pytest.mark.parametrize(
    ("settings", "steps", "milestones"),
    [
        ({"preset": "paper"}, 60, (40, 54)),
        ({"preset": "quick"}, 2000, (1333, 1800)),
        ({"final_steps": 30}, 30, (20, 27)),
        ({"final_steps": 30, "milestones": (5,)}, 30, (5,)),
        ({"final_steps": 30, "milestones": ()}, 30, ()),
    ],
)
def test_final_trainings_follow_the_recipe_of_the_task(monkeypatch, tmp_path, settings, steps, milestones):
    seen = []

    def pretended(self, trials, report=None):
        recipe = self._engine._data[0].recipe
        seen.append((recipe.steps, recipe.milestones))
        return [
            Score(1.0, 1.0, {}, [], one.seed, recipe.steps, milestones=recipe.milestones) for one in trials
        ]  # fmt: skip

    monkeypatch.setattr(TrialTrainer, "scores", pretended)
    found = compare(regression(recipe=LONG), seeds=1, device="cpu", folder=tmp_path, **settings)
    assert set(seen) == {(steps, milestones)}
    assert (found.steps, found.milestones) == (steps, milestones)
    data = found.to_dict()
    assert (data["steps"], data["milestones"]) == (steps, list(milestones))
    described, trained = (json.loads(line)[1] for line in (tmp_path / "trainings.jsonl").read_text().splitlines())
    assert described["comparison"]["milestones"] == list(milestones)
    assert trained["trainings"][0]["score"]["milestones"] == list(milestones)
    assert ("learning rate divided by ten at" in comparison_text(found)) is bool(milestones)
    assert ("learning rate divided by ten at" in comparison_markdown(found)) is bool(milestones)


def test_milestones_hold_alone_and_stacked():
    task = regression(recipe=LONG)
    options = {"losses": ["mae"], "seeds": 1, "rescale": False, "device": "cpu", "final_steps": 30}
    alone = compare(task, population_mode="looped", **options)
    together = compare(task, population_mode="stacked", **options)
    constant = compare(task, milestones=(), **options)
    expected = evomal.train(task, "mae", seed=EVALUATION_SEEDS, steps=30, milestones=(20, 27), device="cpu")
    assert values(alone, "mae") == pytest.approx([expected.test], rel=1e-5)
    assert values(together, "mae") == pytest.approx([expected.test], rel=1e-4)
    assert values(constant, "mae") != pytest.approx([expected.test], rel=1e-4)
    assert alone.entry("mae").losses[0].scores[0].milestones == (20, 27)
    assert together.entry("mae").losses[0].scores[0].milestones == (20, 27)


def test_a_comparison_is_shown_in_a_line_and_printed_as_its_table():
    found = compare(regression(rows=3000), losses=["mae"], seeds=2, rescale=False, **SHORT)
    assert repr(found) == "Comparison('own', baseline='mse', seeds=2, steps=30, verdicts={mae: undecided})"
    assert str(found) == f"{found}" == comparison_text(found).rstrip("\n")
    assert all(len(line) <= 80 for line in str(found).splitlines())
    long = compare(regression(), losses={"a name that is long, as names of files are": "mae"}, seeds=2, **SHORT)
    assert all(len(line) <= 80 for line in str(long).splitlines())
    assert "\na name that is long, as names of files are, rescaled\n  0.05  " in str(long)
    for thing in (found.task, found.entries, found.entries[0].losses[0], found.differences, found.verdicts):
        assert len(repr(thing)) < 700


def test_a_rate_curve_and_a_transfer_are_shown_in_a_line_and_printed_as_tables():
    curve = rate_curve(regression(), rates=[0.01, 0.1], losses={"robust": "mae"}, seeds=1, **SHORT)
    assert repr(curve) == "RateCurve(rates=[0.01, 0.1], losses=['mse', 'robust'], search_each=False)"
    assert str(curve).startswith("lr 0.01\ntest mse after 30 steps, 1 seed\nloss ")
    there = transfer(regression(), losses=["mae"], seeds=1, rescale=False, **SHORT)
    assert repr(there) == f"Transfer(source=None, {there.comparison!r})"
    assert str(there) == str(there.comparison)


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"seeds": 0}, "seeds must be at least 1 but got 0"),
        ({"tune_lr": -1}, "tune_lr must be at least 0 but got -1"),
        ({"tune_decay": True}, "tune_decay needs tune_lr to be at least 1 but got 0"),
        (
            {"tune_decay": True, "tune_lr": 3, "weight_decay": 0.0},
            "tune_decay needs a weight decay to begin with, but .* has none: set one, as in weight_decay=1e-4",
        ),
        ({"losses": ["mea"]}, "loss must be a name"),
        ({"losses": ["ce"]}, "the task is regression, but ce is for classification, multilabel"),
        ({"losses": ["mae", "mae"]}, "losses must be different but mae is given twice"),
        ({"losses": "mae"}, "losses must be a list of losses, or a mapping from names to them, but got 'mae'"),
        ({"losses": {"mse": "mae"}}, "names of losses must not be empty, or the name of a method or the baseline"),
        ({"methods": ["evomal", "evomal"]}, "contestants must have different names but 'evomal' is the name of 2"),
        ({"methods": ["evomall"]}, "there is no method named 'evomall'"),
    ],
)
def test_bad_requests_get_one_sentence(options, sentence):
    with pytest.raises(InputError, match=sentence):
        compare(regression(), **{**SHORT, **options})
