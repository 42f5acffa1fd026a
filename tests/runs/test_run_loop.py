"""Searches: recorded, resumed, refused, ended by budgets, and the same whenever they are the same."""

import dataclasses
import json

import numpy as np
import pytest
import sklearn.metrics
import torch
from torch import nn

import evomal
from evomal.errors import InputError
from evomal.losses import load_loss
from evomal.methods import METHODS, SearchContext
from evomal.runs import RunStore
from evomal.runs.reading import read_runs
from evomal.runs.run_loop import search
from evomal.settings import SearchSettings
from evomal.tasks.recipe import Recipe
from tests.engine.populations import regression
from tests.protocols import ONE_TRAINING

SHORT = {
    **ONE_TRAINING,
    "population": 6, "generations": 3, "meta_steps": 3, "training_steps": 10, "filter_steps": 20, "device": "cpu",
    "population_mode": "looped",
}  # fmt: skip


def run(folder=None, **changes):
    return search(regression(), seed=1, folder=folder, **{**SHORT, **changes})


@pytest.mark.parametrize("method", [name for name, method in METHODS.items() if method.searches_expressions])
def test_a_search_for_expressions_finds_one_and_says_how(method, tmp_path):
    seen = []
    result = run(tmp_path / "run", method=method, callback=seen.append)
    assert [generation.number for generation in result.history] == [0, 1, 2]
    assert [generation.number for generation in seen] == [0, 1, 2]
    assert result.ending == "all 3 generations are done"
    least = min(g.best.fitness for g in result.history if g.best is not None)
    assert result.final.candidates[0][0].fitness == least == result.front[-1].fitness
    assert result.best.formula()
    saved = load_loss(tmp_path / "run" / "best.json")
    assert saved.expression == result.best.expression
    assert saved.weights.tolist() == list(result.best.weights)
    assert saved.provenance["method"] == method
    elites = 2 if method != "random" else 0  # one in each generation but the first
    assert sum(result.counts.values()) == 18 - elites


def test_the_same_seed_gives_the_same_record(tmp_path):
    dumps = []
    for name in ("one", "two"):
        run(tmp_path / name)
        with RunStore.read(tmp_path / name) as store:
            dumps.append(store.dump())
    assert dumps[0] == dumps[1]


class StoppedError(Exception):
    pass


ISLANDS = {"islands": 2, "first_trees": 12, "surplus": 1.5, "migration": 2}


@pytest.mark.parametrize(("generations_done", "changes"), [(1, {}), (2, {}), (1, ISLANDS), (2, ISLANDS)])
def test_interrupted_and_resumed_it_is_the_same(tmp_path, generations_done, changes):
    whole = run(tmp_path / "whole", **changes)

    def stop(generation):
        if generation.number == generations_done - 1:
            raise StoppedError

    with pytest.raises(StoppedError):
        run(tmp_path / "parts", callback=stop, **changes)
    (tmp_path / "parts" / "best.json").unlink(missing_ok=True)
    resumed = run(tmp_path / "parts", **changes)
    with RunStore.read(tmp_path / "whole") as one, RunStore.read(tmp_path / "parts") as other:
        assert one.dump() == other.dump()
    assert resumed.best == whole.best
    best = [json.loads((tmp_path / name / "best.json").read_text()) for name in ("whole", "parts")]
    assert best[0] == best[1]


def test_a_finished_run_is_only_read_again(tmp_path):
    first = run(tmp_path)
    again = run(tmp_path, callback=lambda generation: pytest.fail("nothing is to be computed"))
    assert again.best == first.best
    assert again.history == first.history


@pytest.mark.parametrize("changes", [{}, ISLANDS])
def test_a_finished_run_can_be_given_more_generations(tmp_path, changes):
    whole = run(tmp_path / "whole", **changes)
    run(tmp_path / "longer", **changes, generations=1)
    assert len(run(tmp_path / "longer", **changes, generations=2).history) == 2
    longer = run(tmp_path / "longer", **changes)
    assert longer.ending == "all 3 generations are done"
    assert (longer.best, longer.final) == (whole.best, whole.final)
    with RunStore.read(tmp_path / "whole") as one, RunStore.read(tmp_path / "longer") as other:
        assert one.dump().splitlines()[1:] == other.dump().splitlines()[1:]
        assert other.settings.pop("first_budgets")["generations"] == 1
        assert other.settings["budgets"] == one.settings["budgets"]
    best = [(tmp_path / name / "best.json").read_bytes() for name in ("whole", "longer")]
    assert best[0] == best[1]


def test_another_search_is_refused_with_what_differs(tmp_path):
    run(tmp_path)
    before = (tmp_path / "run.sqlite").read_bytes()
    with pytest.raises(InputError, match=r"is the record of another search: .*meta_steps was 3 but is 4"):
        run(tmp_path, meta_steps=4)
    assert (tmp_path / "run.sqlite").read_bytes() == before


def test_a_search_that_a_budget_ended_can_be_resumed(tmp_path):
    short = run(tmp_path, max_evaluations=1)
    assert "max_evaluations is 1, reached with 1 candidate" in short.ending
    assert len(short.history) < 3
    assert run(tmp_path).ending == "all 3 generations are done"
    assert "of 0.001 s is used up" in run(max_time=0.001).ending


def test_patience():
    result = run(generations=12, patience=2, seed_with=("mae",), finalists=0)
    assert result.ending == "nothing better was found for 2 generations"
    assert len(result.history) == result.best.generation + 3


def test_seeds_stand_in_the_first_generation(tmp_path):
    result = run(tmp_path, seed_with=("mse",), generations=1)
    with RunStore.read(tmp_path) as store:
        first = store.candidates()[0]
    assert (first.genome, first.origin) == ("square(sub(y, f))", "seeded")
    assert result.best.fitness <= first.fitness


def test_nothing_survives_and_it_is_said(tmp_path):
    # At such a rate no loss moves its predictions, so the rejection protocol lets none through.
    result = run(tmp_path, generations=1, lr=1e-30)
    assert result.best is None
    assert result.front == ()
    assert set(result.counts) <= {"rejected", "dead gradient", "cached", "diverged"}
    assert sum(result.counts.values()) == 6
    assert not (tmp_path / "best.json").exists()


def test_settings_are_given_once():
    with pytest.raises(InputError, match="settings are given already, so they cannot be changed by population"):
        search(regression(), settings=SearchSettings.preset("quick"), population=5)
    with pytest.raises(InputError, match="there is no method named 'evomall': did you mean 'evomal'"):
        search(regression(), method="evomall")


def test_a_search_resumed_by_force_records_what_differed(tmp_path):
    class StoppedError(Exception):
        pass

    def stop(generation):
        raise StoppedError

    with pytest.raises(StoppedError):
        run(tmp_path, callback=stop)
    with pytest.raises(InputError, match="meta_steps was 3 but is 4"):
        run(tmp_path, meta_steps=4)
    for _ in range(2):  # again, over the same: noted once
        with pytest.raises(StoppedError):
            run(tmp_path, meta_steps=4, force=True, callback=stop)
    with RunStore.read(tmp_path) as store:
        (forced,) = store.forced
    assert forced.chunks == 1
    assert "meta_steps was 3 but is 4" in forced.differences
    assert run(tmp_path, meta_steps=4, force=True).ending == "all 3 generations are done"
    with RunStore.read(tmp_path) as store:
        assert '"kind":"forced"' in store.dump()
        assert len(store.forced) == 1


def test_force_changes_nothing_where_nothing_differs(tmp_path):
    run(tmp_path / "one")
    run(tmp_path / "two", force=True)
    with RunStore.read(tmp_path / "one") as one, RunStore.read(tmp_path / "two") as two:
        assert one.dump() == two.dump()


def test_any_metric_is_the_fitness_asked_for(tmp_path):
    result = run(tmp_path, metric="mae", seed_with=("mse",), generations=1)
    steps = SHORT["training_steps"]
    with RunStore.read(tmp_path) as store:
        first = store.candidates()[0]
        assert store.settings["settings"]["metric"] == "mae"
    loss = evomal.ExpressionLoss(first.genome, weights=first.weights, kind="regression")
    trained = evomal.train(regression().judged_by("mae"), loss, seed=1, steps=steps, device="cpu")
    assert first.fitness == pytest.approx(trained.validation, rel=1e-5)
    assert result.best.fitness <= first.fitness
    with pytest.raises(InputError, match="metric must be one of mse"):
        run(metric="charm")


def test_where_more_is_better_the_most_wins(tmp_path):
    result = run(tmp_path, metric="r2", seed_with=("mse", "mae"), generations=1)
    with RunStore.read(tmp_path) as store:
        first_generation = [row for row in store.candidates() if row.generation == 0]
        scores = {row.genome: -row.fitness for row in first_generation if row.state == "evaluated"}
    loss = evomal.ExpressionLoss(result.best.expression, weights=result.best.weights, kind="regression")
    trained = evomal.train(regression().judged_by("r2"), loss, seed=1, steps=SHORT["training_steps"], device="cpu")
    assert max(scores.values()) == -result.best.fitness == pytest.approx(trained.validation, rel=1e-4)


def binary(**changes):
    """One logit and rare positives, so that a hundred samples of the filter hold few."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(400, 4))
    y = (x[:, 0] + rng.normal(size=400) > 2).astype(int)
    network = lambda: nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 1))  # noqa: E731
    return evomal.Task.from_arrays(x, y, model=network, **changes)


def test_a_search_by_auroc_returns_the_candidate_with_the_highest(tmp_path):
    result = search(
        binary(), seed=1, folder=tmp_path, preset="paper", metric="auroc", seed_with=("ce",),
        **{**SHORT, "training_steps": 40, "filters": ("symbolic", "dead", "rejection")},
    )  # fmt: skip
    with RunStore.read(tmp_path) as store:
        rows = [row for row in store.candidates() if row.state == "evaluated"]
        (recorded,) = store.settings["task"].values()
    assert (recorded["metric"], recorded["higher_is_better"]) == ("auroc", True)
    values = [-row.fitness for row in rows]
    assert len(values) > 3
    assert min(values) < max(values) == result.best.value == -result.best.fitness
    trained = evomal.train(
        binary(metric="auroc"), result.best.loss(), seed=1, steps=40, device="cpu", keep_model=True
    )  # fmt: skip
    assert result.best.value == pytest.approx(trained.validation, abs=1e-6)
    part = binary().validation
    with torch.no_grad():
        scores = trained.model(part.inputs)[:, 0]
    assert result.best.value == pytest.approx(sklearn.metrics.roc_auc_score(part.targets, scores), abs=1e-6)
    assert load_loss(tmp_path / "best.json").provenance["value"] == result.best.value


def error_of_signs(outputs, targets):
    return ((outputs[:, 0] > 0) == targets).double().mean()


@pytest.mark.parametrize("higher_is_better", [True, False])
def test_a_metric_of_one_s_own_is_followed_in_its_direction(tmp_path, higher_is_better):
    metric = evomal.Metric(error_of_signs, "hits", higher_is_better=higher_is_better)
    result = search(
        binary(metric=metric), seed=1, folder=tmp_path, preset="paper", **{**SHORT, "filters": ("symbolic", "dead")}
    )
    with RunStore.read(tmp_path) as store:
        values = [metric.cost(row.fitness) for row in store.candidates() if row.state == "evaluated"]
    assert min(values) < max(values)
    assert result.best.value == (max(values) if higher_is_better else min(values))
    (read,) = read_runs([tmp_path]).runs
    assert (read.metric, read.higher_is_better) == ("hits", higher_is_better)


def test_a_function_is_no_setting():
    with pytest.raises(InputError, match=r"the setting metric is a name but got .*: a metric of your own belongs to"):
        search(binary(), metric=error_of_signs)


class Listener:
    def __init__(self):
        self.begin, self.steps, self.generations = None, [], []
        self.phases, self.known, self.over = [], None, None

    def on_start(self, *, generations, steps, final_steps, recorded, metric):
        self.begin = (generations, steps, len(recorded))

    def on_phase(self, name, steps):
        self.phases.append((name, steps))
        self.steps.clear()

    def on_steps(self, stage, steps):
        self.steps.append((stage, steps))

    def on_rivals(self, scores):
        assert sum(steps for _, steps in self.steps) == (self.phases[0][1] if self.phases else 0)
        self.known = dict(scores)
        self.steps.clear()

    def on_generation(self, generation):
        self.generations.append(generation.number)

    def on_final(self, final):
        assert sum(steps for _, steps in self.steps) == self.phases[-1][1]
        self.over = final


def test_a_watcher_sees_every_step(tmp_path):
    listener = Listener()
    with pytest.raises(ZeroDivisionError):
        run(tmp_path, listener=listener, callback=lambda generation: 1 / 0)
    assert listener.begin == (3, 6 * 10 + 3, 0)
    assert {stage for stage, _ in listener.steps} <= {"optimise", "evaluate"}
    assert sum(steps for stage, steps in listener.steps if stage == "optimise") == 3
    assert listener.phases == [("rivals", 3 * 10)]
    later = Listener()
    result = run(tmp_path, listener=later)
    assert later.begin == (3, 6 * 10 + 3, 1)
    assert later.generations == [1, 2]
    assert later.known == listener.known == result.rivals
    assert later.over == result.final
    assert later.phases == [("final", 3 * 10 * (3 + len(result.final.candidates)))]


def changed(task, **changes):
    return dataclasses.replace(task, **changes)


@pytest.mark.parametrize(
    ("other", "key"),
    [
        (lambda: regression(seed=7), "data"),
        (lambda: changed(regression(), recipe=Recipe(lr=0.5)), "recipe"),
        (lambda: regression().judged_by("mae"), "metric"),
        (lambda: regression(lambda: nn.Sequential(nn.Linear(4, 8), nn.Sigmoid(), nn.Linear(8, 1))), "fresh_model"),
    ],
)  # fmt: skip
def test_a_task_that_changed_is_another_task(tmp_path, other, key):
    run(tmp_path, generations=1)
    with pytest.raises(InputError, match=rf"is the record of another search: .*{key}"):
        search(other(), seed=1, folder=tmp_path, **{**SHORT, "generations": 1})


def test_the_best_has_its_metric_and_its_cost():
    result = run(metric="r2", seed_with=("mse",), generations=1)
    assert result.best.value == -result.best.fitness
    assert run(seed_with=("mse",), generations=1).best.value > 0


def test_a_training_that_diverges_is_paid_for_too(tmp_path):
    result = search(
        regression(), seed=1, method="taylorglo", folder=tmp_path, **{**SHORT, "max_evaluations": 6, "generations": 5}
    )
    assert sum(result.counts.values()) == 6
    with RunStore.read(tmp_path) as store:
        assert all("evaluate" in row.seconds for row in store.candidates())


def test_patience_does_not_wait_for_ever_for_a_first_one():
    result = run(generations=5, patience=2, lr=1e-30)
    assert result.best is None
    assert result.ending == "nothing better was found for 2 generations"


def test_fewer_generations_than_are_recorded_are_refused(tmp_path):
    run(tmp_path, max_evaluations=1, generations=3)
    run(tmp_path, generations=3)
    with pytest.raises(InputError, match="generations must be at least 3, the number already recorded, but got 2"):
        run(tmp_path, generations=2)


@pytest.mark.parametrize(
    "changes",
    [
        {"initial_height": (1, 2)}, {"max_height": 4}, {"tournament": 1}, {"crossover": 0.0}, {"mutation": 0.0},
        {"elitism": 0.5}, {"parsimony": 10.0},
    ],
    ids=lambda changes: next(iter(changes)),
)  # fmt: skip
def test_every_setting_of_the_genetic_search_changes_what_is_proposed(changes):
    def proposed(**settings):
        context = SearchContext(
            SearchSettings.preset("paper", population=20, generations=8, **settings), 1, "regression"
        )
        strategy, seen = METHODS["gp-lfl"].strategy(context), []
        for _ in range(8):
            asked = strategy.ask()
            seen.append([str(proposal.genome) for proposal in asked])
            # Trees of other sizes may share a fitness, so that parsimony has something to decide.
            strategy.tell([candidate.measured(float(len(candidate.genome) % 7)) for candidate in asked])
        return seen

    assert proposed() != proposed(**changes)


def test_the_loss_found_has_the_units_of_the_task(tmp_path):
    tiny = {**SHORT, "method": "taylorglo", "generations": 1, "population": 4}
    task = regression()
    assert task.units is not None
    found = search(task, seed=1, folder=tmp_path, **tiny)
    loss, saved = found.best.loss(), load_loss(tmp_path / "best.json")
    assert loss.units == saved.units == task.units
    raw = [task.to_raw(values.double()) for values in (task.test.targets.flip(0), task.test.targets)]
    standardised = task.test.targets.flip(0).double(), task.test.targets.double()
    assert saved(*raw).item() == pytest.approx(loss.in_units(None)(*standardised).item(), rel=1e-9)
    trainings = [evomal.train(task, one, steps=5, device="cpu").test for one in (saved, loss.in_units(None))]
    assert trainings[0] == trainings[1]
    other = regression(seed=3)
    assert other.units != task.units
    assert search([task, regression()], seed=1, **tiny).best.loss().units == task.units
    assert search([task, other], seed=1, **tiny).best.loss().units is None
