"""What a search is expected to take, held against what it takes."""

import time
from types import SimpleNamespace
from typing import ClassVar

import pytest

from evomal.engine import Engine, EngineSettings
from evomal.errors import InputError
from evomal.losses.loss import WeightedTree
from evomal.methods import METHODS, method_named
from evomal.methods.baseline import strong_rivals
from evomal.methods.rungs import Ladder
from evomal.runs import estimates
from evomal.runs.estimates import estimate
from evomal.runs.run_loop import search
from evomal.settings import SearchSettings
from tests.engine.populations import classification, regression

SHORT = SearchSettings.preset(
    "paper", finalists=10, population=6, generations=3, meta_steps=3, training_steps=10, filter_steps=20, device="cpu"
)


@pytest.mark.usefixtures("rough_estimates")
@pytest.mark.parametrize("method", METHODS)
def test_every_stage_of_a_method_is_in_its_estimate(method):
    found = estimate(regression(), method=method, settings=SHORT)
    own = {
        "evomal": {"filter", "optimise", "evaluate"},
        "random": {"filter", "optimise", "evaluate"},
        "gp-lfl": {"filter", "evaluate"},
        "ml3": {"optimise", "evaluate"},
        "ml3-single": {"optimise", "evaluate"},
    }.get(method, {"evaluate"})
    assert set(found.stages) == {"setup", "rivals", *own, *(() if method == "baseline" else ("final",))}
    assert all(seconds > 0 for seconds in found.stages.values())
    assert found.generations == (1 if method in ("baseline", "ml3-single") else 3)
    assert found.population == (1 if method in ("baseline", "ml3", "ml3-single") else 6)
    assert found.device == "cpu"
    assert found.memory > 50 * 2**20


class Clock:
    """Time that passes only where the engine works: so much once, and so much for each step of each candidate."""

    ONCE: ClassVar = {
        "optimise": 0.5, "evaluate": 0.25, "gains": 0.125, "gradient_norms": 0.0625, "evaluate_losses": 0.75,
    }  # fmt: skip
    EACH: ClassVar = {"optimise": 0.01, "evaluate": 0.002, "evaluate_losses": 0.001}

    def __init__(self, monkeypatch):
        self.now = 0.0
        monkeypatch.setattr("evomal.runs.estimates.time", SimpleNamespace(perf_counter=lambda: self.now))
        for stage in self.ONCE:
            monkeypatch.setattr(Engine, stage, self.work(stage))

    def work(self, stage):
        def worked(engine, *columns):
            settings = engine.settings
            steps = settings.meta_steps if stage == "optimise" else settings.training_steps
            self.now += self.ONCE[stage] + self.EACH.get(stage, 0.0) * steps * len(columns[0])
            return []

        return worked


@pytest.mark.parametrize("generations", [1, 7])
def test_stages_are_extrapolated_from_their_slope(generations, monkeypatch):
    Clock(monkeypatch)
    settings = SHORT.with_changes(population=20, generations=generations, meta_steps=70, training_steps=900)
    found = estimate(regression(), method="evomal", settings=settings).stages
    # Of 20 candidates 14 are expected to be optimised, and 10 trained.
    assert found["optimise"] == pytest.approx(generations * (0.5 + 0.01 * 70 * 14))
    assert found["evaluate"] == pytest.approx(generations * (0.25 + 0.002 * 900 * 10))
    assert found["filter"] == pytest.approx(generations * (0.125 + 0.0625))
    # Three rivals one by one, then with each of three seeds again beside ten finalists.
    rivals = 3 * (0.75 + 0.001 * 900)
    assert found["rivals"] == pytest.approx(rivals)
    assert found["final"] == pytest.approx(3 * (rivals + 10 * (0.25 + 0.002 * 900 * 10) / 10))


def test_looped_candidates_are_tried_by_two_and_multiplied(monkeypatch):
    Clock(monkeypatch)
    settings = SHORT.with_changes(population=20, generations=1, training_steps=900, population_mode="looped")
    found = estimate(regression(), method="taylorglo", settings=settings).stages
    assert found["evaluate"] == pytest.approx((0.25 + 0.002 * 900 * 2) * 10)
    assert found["setup"] >= 0  # nothing is subtracted but what was tried


def test_on_rungs_networks_are_timed_as_networks_and_rivals_as_trees(monkeypatch):
    clock = Clock(monkeypatch)

    def try_rates(engine, losses, rungs, rates):
        each = 0.001 if isinstance(losses[0], WeightedTree) else 0.05
        clock.now += each * rungs[0].steps * sum(map(len, rates)) * len(rungs[0].seeds)

    monkeypatch.setattr(Engine, "try_rates", try_rates)
    task, settings = regression(), SearchSettings.preset("quick", generations=2, meta_steps=1, device="cpu")
    found = estimate(task, method="ml3", settings=settings).stages
    ladder = Ladder.of(settings, seed=0, is_exchangeable=task.exchangeable)
    assert found["rivals"] == pytest.approx(0.001 * len(strong_rivals(task)) * ladder.headroom_steps())
    assert found["evaluate"] == pytest.approx(0.05 * 2 * ladder.steps(1))
    # Two finalists at four rates on two seeds, then at two rates with five, and the lead by fifteen for each of three
    # losses and a runner-up; of the rivals five at the four rates, and then three at two.
    own, others = 2 * 4 * 2 + 2 * 2 * 5 + 4 * 15, 5 * 4 * 2 + 3 * 2 * 5
    assert found["final"] == pytest.approx(2000 * (0.05 * own + 0.001 * others))


def test_what_a_search_would_refuse_is_refused():
    with pytest.raises(InputError, match="there is no method named 'evomall'"):
        estimate(regression(), method="evomall", settings=SHORT)
    with pytest.raises(InputError, match="metric must be one of"):
        estimate(regression(), method="evomal", settings=SHORT.with_changes(metric="charm"))


@pytest.mark.usefixtures("rough_estimates")
@pytest.mark.parametrize(("stage", "preset"), [("optimise", "paper"), ("evaluate", "paper"), ("try_rates", "quick")])
def test_what_is_timed_is_the_tasks_own_loss(stage, preset, monkeypatch):
    """Trees drawn at random may diverge, which ends their training, and made a search look cheaper than it was."""
    timed = set()

    def run(engine, losses, rungs, rates=()):
        timed.update(str(getattr(loss, "expression", loss)) for loss in losses)
        assert all(max(each) == 1 and min(each) > 0 for each in rates), "none above the task's own"
        return []

    monkeypatch.setattr(Engine, stage, run)
    settings = SearchSettings.preset(preset, population=4, generations=1, device="cpu")
    estimate(classification(), method="evomal", settings=settings)
    assert timed == {"mul(-1, mul(y, log(f)))"}


def test_jobs_divide_the_trainings_among_the_processors(monkeypatch):
    monkeypatch.setattr(estimates, "processors", lambda: 4)
    seconds = {"setup": 1.0, "rivals": 6.0, "filter": 2.0, "evaluate": 12.0, "final": 6.0}
    for jobs, threads, shares in ((1, 1, 1), (3, 1, 3), (8, 1, 4), (4, 2, 2), (2, 4, 1)):
        engine = Engine(regression(), seed=0, settings=EngineSettings(device="cpu", threads=threads))
        probe = estimates._Probe(engine, method_named("evomal"), 0, jobs)
        found = probe.estimate(seconds, SimpleNamespace(population=2, generations=3))
        expected = {name: taken / (1 if name in ("setup", "filter") else shares) for name, taken in seconds.items()}
        assert found.stages == expected
        assert found.seconds == pytest.approx(3.0 + 24.0 / shares)


@pytest.mark.long
@pytest.mark.parametrize("method", ["evomal", "gp-lfl", "taylorglo", "ml3"])
def test_the_estimate_is_right_within_a_factor_of_two(method):
    """Only on a machine that does nothing else."""
    settings = SearchSettings.preset("quick", device="cpu")
    expected = estimate(regression(), method=method, settings=settings).seconds
    begin = time.perf_counter()
    search(regression(), method=method, settings=settings)
    taken = time.perf_counter() - begin
    assert expected / 2 < taken < expected * 2
