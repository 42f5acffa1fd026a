"""Searches on rungs: headroom before, a final in stages after, what is recommended, and all of it resumed."""

import math
import shutil
from dataclasses import replace
from unittest.mock import Mock

import pytest
from torch import nn

import evomal
from evomal.engine import Engine
from evomal.errors import EvomalError, InputError
from evomal.losses import load_loss
from evomal.methods import Candidate
from evomal.methods.rungs import Ladder, spaced_rates
from evomal.runs import RunStore, find_runs
from evomal.runs.finals import Final
from evomal.runs.finals_trainer import FinalsTrainer
from evomal.runs.leads import Scores, lead_on_other_rows, paired_lead
from evomal.runs.measured_rivals import Headroom
from evomal.runs.run_loop import search
from evomal.tasks import task as task_module
from tests.engine.populations import regression
from tests.protocols import ON_RUNGS
from tests.runs.interrupted import StoppedError, StoppingListener

SHORT = {
    **ON_RUNGS, "population": 4, "generations": 2, "training_steps": 10, "filter_steps": 10, "finalists": 2,
    "final_seeds": 3, "device": "cpu", "seed_with": ("mse", "mae"), "resplit": False,
}  # fmt: skip


def run(folder, **changes):
    return search(regression(), seed=1, folder=folder, **{**SHORT, **changes})


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished")
    return folder, run(folder)


@pytest.fixture(scope="module")
def to_baseline(tmp_path_factory):
    """The same, with candidates scaled to the baseline."""
    folder = tmp_path_factory.mktemp("to_baseline")
    return folder, run(folder, scaled_to="baseline")


def test_rivals_are_trained_on_every_rung_at_every_learning_rate(finished):
    folder, result = finished
    with RunStore.read(folder) as store:
        rivals = [trial for trial in store.trials() if trial.stage == "rivals"]
    assert {trial.steps for trial in rivals} == {5, 10}
    assert len({trial.rate for trial in rivals}) == ON_RUNGS["tried_rates"] + 2
    assert list(result.headroom.losses) == list(result.rivals)
    assert len(result.headroom.last("mse").scores) == 4
    assert result.rivals == {name: result.headroom.last(name).mean for name in result.rivals}


def test_a_listener_knows_the_steps_of_the_final_before_and_hears_of_what_is_computed_only(finished, tmp_path):
    folder, result = finished
    listener = Mock()
    run(tmp_path, listener=listener, generations=1)
    (_, of_rivals), (name, steps) = (call.args for call in listener.on_phase.call_args_list)
    assert (name, of_rivals > 0) == ("final", True)
    # It is not known yet whether the baseline is among the best rivals.
    assert listener.on_start.call_args.kwargs["final_steps"] == pytest.approx(steps, rel=0.1)
    again = Mock()
    assert run(folder, listener=again).best == result.best
    assert not again.on_phase.called, "all of it is recorded"


def trained_candidates(folder):
    with RunStore.read(folder) as store:
        return [one for one in store.candidates() if one.state == "evaluated"]


def test_candidates_have_their_rungs_rates_and_factors(to_baseline):
    found = trained_candidates(to_baseline[0])
    assert {len(one.rungs) for one in found} == {1, 2}
    assert all(one.fitness == one.rungs[-1][1] for one in found)
    # mse is the baseline, so that its gradient is matched already.
    (mse,) = {one.factor for one in found if one.genome == "square(sub(y, f))" and set(one.weights) == {1.0}}
    assert mse == pytest.approx(1.0, rel=1e-4)


def test_candidates_are_scaled_to_the_best_known_loss_and_tried_around_its_rate(finished, to_baseline):
    headroom = finished[1].headroom
    assert headroom.best != "mse", "the baseline would be no test"
    assert headroom == to_baseline[1].headroom
    scaled, before = (
        {one.genome: one for one in trained_candidates(folder) if one.generation == 0}
        for folder, _ in (finished, to_baseline)
    )
    assert scaled.keys() == before.keys()
    ratios = [scaled[genome].factor / before[genome].factor for genome in before]
    assert ratios == pytest.approx(ratios[:1] * len(ratios), rel=1e-4)
    assert ratios[0] != pytest.approx(1.0, rel=1e-2)
    around = spaced_rates(ON_RUNGS["tried_rates"], around=headroom.last(headroom.best).rate)
    assert {one.rungs[0][0] for one in scaled.values()} <= {*around}
    assert {*around} != {*spaced_rates(ON_RUNGS["tried_rates"])}


@pytest.mark.parametrize(
    "changes", [{"method": "ml3-single"}, {"method": "taylorglo"}, {"activation": "softplus", "method": "evomal"}]
)
def test_losses_that_are_not_scaled_keep_to_rates_around_the_task_s_own(finished, tmp_path, changes):
    result = run(tmp_path, seed_with=(), finalists=0, generations=1, **changes)
    headroom = result.headroom
    assert headroom.last(headroom.best).rate == finished[1].headroom.last(headroom.best).rate != 1.0
    rates = {one.rungs[0][0] for one in trained_candidates(tmp_path)}
    assert rates
    assert rates <= {*spaced_rates(ON_RUNGS["tried_rates"])}
    assert all(one.factor == 1.0 for one in trained_candidates(tmp_path))


@pytest.mark.parametrize(("mean", "is_told"), [(0.5, True), (math.inf, False)])
def test_candidates_are_not_scaled_to_a_loss_that_diverged(monkeypatch, mean, is_told):
    trainer = object.__new__(FinalsTrainer)
    trainer._ladder, trainer._rule, trainer._listener, trainer._evaluator = object(), None, None, Mock()
    monkeypatch.setattr(FinalsTrainer, "_train_on_rungs", lambda *_: {})
    found = Mock(best="mae", last=lambda name: Mock(mean=mean, rate=10.0))
    monkeypatch.setattr(FinalsTrainer, "headroom", found)
    trainer.train_rivals()
    assert trainer._evaluator.measured_rivals.called is is_told


def test_a_record_from_before_is_resumed_with_candidates_scaled_to_the_baseline(to_baseline, tmp_path):
    shutil.copytree(to_baseline[0], tmp_path, dirs_exist_ok=True)
    with RunStore.read(tmp_path) as store:
        assert "scaled_to" not in store.settings["settings"]
    assert run(tmp_path).best == to_baseline[1].best


def test_the_final_chooses_rates_then_the_winner_then_measures_its_lead(finished):
    folder, result = finished
    with RunStore.read(folder) as store:
        trials = store.trials()
    seeds = {stage: {trial.seed for trial in trials if trial.stage == stage} for stage in ("rates", "final", "lead")}
    assert [len(found) for found in seeds.values()] == [2, 3, 9]
    assert len(set.union(*seeds.values())) == 14
    settled = {trial.rate for trial in trials if (trial.stage, trial.loss) == ("final", "mse")}
    assert len(settled) == 2
    assert result.final.rates["mse"] in settled
    final = result.final
    assert {trial.loss for trial in trials if trial.stage == "lead"} == set(final.compared)
    own, other, _ = final.last
    assert final.lead[0] == pytest.approx(other.mean - own.mean)
    assert next(iter(final.rivals)) == "mse"


@pytest.mark.parametrize("changes", [{}, {"final_share": 0.5}], ids=["rows of the search", "rows of its own"])
def test_leads_are_measured_without_each_block_of_rows_too(finished, tmp_path, monkeypatch, changes):
    monkeypatch.setattr(task_module, "FEWEST_ROWS", 40)
    folder = tmp_path if changes else finished[0]
    result = run(folder, **changes) if changes else finished[1]
    with RunStore.read(folder) as store:
        trials = store.trials()
    longest = max(trial.steps for trial in trials if trial.stage == "rivals")
    for trial in trials:
        if trial.stage == "lead" or (trial.stage, trial.steps) == ("rivals", longest):
            # Of blocks with as many rows as each other, the mean over them is that over all rows.
            assert len(set(trial.left_out)) == 20
            assert sum(trial.left_out) / 20 == pytest.approx(trial.score, rel=1e-5)
        else:
            assert not trial.left_out
    lead, half = result.final.lead_on_other_rows
    assert lead == result.final.lead[0]
    assert half > result.final.lead[1]
    headroom = result.headroom
    own, rival = headroom.last("mse"), headroom.last(headroom.best_rival)
    half, with_others = paired_lead(*rival.beside(own))[1], lead_on_other_rows(*rival.beside(own))[1]
    assert headroom.noise == half < with_others
    assert f"; ± {with_others:.2g} with other rows" in str(headroom).replace("\n", " ")
    assert find_runs(folder)[0].final == result.final, "read back alike"


def test_with_new_splits_for_every_seed_no_block_is_left_out(tmp_path):
    result = run(tmp_path, resplit=True)
    with RunStore.read(tmp_path) as store:
        assert not any(trial.left_out for trial in store.trials())
    assert result.final.lead_on_other_rows is None
    assert "with other rows" not in str(result.headroom).replace("\n", " ")


def test_the_best_loss_is_the_one_that_was_trained(finished):
    """Its factor is part of it, so that it trains as in the final at the learning rate that the file names."""
    folder, result = finished
    saved, task = load_loss(folder / "best.json"), regression()
    assert saved.provenance["learning_rate"] == result.best.lr
    assert saved.provenance["recipe"].startswith("sgd, momentum 0.9 (Nesterov), weight decay 0.0005, batches of ")
    evomal.save_loss(result.best.loss(), folder / "again.json")
    assert (folder / "again.json").read_bytes() == (folder / "best.json").read_bytes(), "with the same provenance"
    with RunStore.read(folder) as store:
        place = result.final.winner[0].place
        trial = next(one for one in store.trials() if one.stage == "lead" and one.loss == place)
    score = evomal.train(task, saved, seed=trial.seed, steps=trial.steps, lr=result.best.lr, device="cpu")
    assert score.validation == pytest.approx(trial.score, rel=1e-3)


def test_what_is_recommended_is_the_winner_or_the_best_rival(finished):
    _, result = finished
    recommended = result.recommended
    if result.final.leads:
        assert recommended.learned == result.best
    else:
        name = result.final.advised
        assert name in (result.final.best_rival[0], "mse")
        assert (recommended.name, recommended.learned) == (name, None)
        assert recommended.lr == result.final.advised_lr
        assert str(result).count(f"use {name} with lr") == 1
    assert math.isfinite(float(recommended.loss()(regression().test.targets * 0, regression().test.targets)))


def test_a_learning_rate_that_diverges_with_further_seeds_is_left(finished, tmp_path, monkeypatch):
    """Those of stage `rates` are chosen with two seeds; the lead is measured at what is settled with more."""
    trained, calls = Engine.try_rates, []

    def try_rates(engine, losses, rungs, rates, **named):
        found = trained(engine, losses, rungs, rates, **named)
        if rungs[0].steps == ON_RUNGS["final_steps"]:
            calls.append(rates)
            if len(calls) == 2:
                lost = [{max(one.costs): (math.inf,) * len(rungs[0].seeds)} for one in found]
                found = [replace(one, costs={**one.costs, **gone}) for one, gone in zip(found, lost, strict=True)]
        return found

    monkeypatch.setattr(Engine, "try_rates", try_rates)
    result = run(tmp_path)
    with RunStore.read(tmp_path) as store:
        trials = store.trials()
    for loss, rate in result.final.rates.items():
        assert rate == min(trial.rate for trial in trials if (trial.stage, trial.loss) == ("final", loss))
    assert {trial.rate == result.final.rates[trial.loss] for trial in trials if trial.stage == "lead"} == {True}
    assert len(calls) >= 3
    assert all(math.isfinite(value) for scores in result.final.last for value in scores.values)


class Failing:
    """Every candidate of a final beats the rivals, but the winner does not on further seeds."""

    def __init__(self, patched, *, measured=0, stops_after=math.inf):
        trained, self.measured = Engine.try_rates, measured

        def try_rates(engine, losses, rungs, rates, **named):
            found, seeds = trained(engine, losses, rungs, rates, **named), len(rungs[0].seeds)
            if rungs[0].steps != ON_RUNGS["final_steps"] or seeds == 2:
                return found
            costs = [1.0 if isinstance(loss, nn.Module) else 0.1 + index / 100 for index, loss in enumerate(losses)]
            if seeds == 9:
                self.measured += 1
                if self.measured > stops_after:
                    raise KeyboardInterrupt
                costs = [2.0 if self.measured == 1 and cost < 1 else cost for cost in costs]
            return [
                replace(one, costs=dict.fromkeys(one.costs, (cost,) * seeds), left_out={})
                for one, cost in zip(found, costs, strict=True)
            ]

        patched.setattr(Engine, "try_rates", try_rates)


def test_a_runner_up_is_trained_if_the_winner_has_no_lead_and_this_is_resumed(tmp_path, monkeypatch):
    """Also after an interruption between the two: to the same record."""
    with monkeypatch.context() as patched:
        failing = Failing(patched)
        whole = run(tmp_path / "whole")
    assert failing.measured == 2
    assert whole.final.leads
    assert whole.final.place == 1
    assert whole.recommended.learned == whole.best
    chosen = load_loss(tmp_path / "whole" / "best.json").provenance["chosen"]
    assert chosen == "the second best mean of 3 fresh seeds among 2 finalists"
    assert "the second best candidate beats" in str(whole).replace("\n             ", " ")
    with monkeypatch.context() as patched:
        Failing(patched, stops_after=1)
        with pytest.raises(KeyboardInterrupt):
            run(tmp_path / "stopped")
    with monkeypatch.context() as patched:
        Failing(patched, measured=1)
        resumed = run(tmp_path / "stopped")
    assert resumed.final == whole.final
    with RunStore.read(tmp_path / "stopped") as one, RunStore.read(tmp_path / "whole") as other:
        assert one.dump() == other.dump()
    best = [(tmp_path / name / "best.json").read_bytes() for name in ("stopped", "whole")]
    assert best[0] == best[1]


def test_a_final_of_an_older_record_with_one_learning_rate_of_each_loss_is_resumed(finished, tmp_path, monkeypatch):
    with monkeypatch.context() as older:
        older.setattr(Ladder, "settled_rates", lambda ladder, rate: (rate,))
        before = run(tmp_path)
    assert run(tmp_path).final == before.final
    with RunStore.read(tmp_path) as store:
        final = [trial for trial in store.trials() if trial.stage == "final"]
    assert len({(trial.loss, trial.rate) for trial in final}) == len({trial.loss for trial in final})


@pytest.mark.parametrize("stage", ["rates", "final", "lead"])
def test_a_final_in_which_every_training_fails_is_not_recorded(finished, tmp_path, monkeypatch, stage):
    """As without memory on a shared device: the search stops, and what is resumed later decides who leads."""
    number, calls = ["rates", "final", "lead"].index(stage), []
    trained = Engine.try_rates

    def try_rates(engine, losses, rungs, rates, **named):
        if rungs[0].steps == ON_RUNGS["final_steps"]:
            calls.append(rungs)
            if len(calls) > number:
                raise MemoryError("no memory is left")
        return trained(engine, losses, rungs, rates, **named)

    with monkeypatch.context() as patched:
        patched.setattr(Engine, "try_rates", try_rates)
        with pytest.raises(EvomalError, match=r"its own loss, mse: .*no memory is left"):
            run(tmp_path)
    with RunStore.read(tmp_path) as store:
        assert stage not in {trial.stage for trial in store.trials()}
    run(tmp_path)
    with RunStore.read(tmp_path) as again, RunStore.read(finished[0]) as whole:
        assert again.dump() == whole.dump()


@pytest.mark.parametrize("stage", ["rivals", "generations", "final"])
def test_an_interrupted_search_is_resumed_to_the_same_record(finished, tmp_path, stage):
    with pytest.raises(StoppedError):
        run(tmp_path, listener=StoppingListener(stage))
    run(tmp_path)
    with RunStore.read(tmp_path) as again, RunStore.read(finished[0]) as whole:
        assert again.dump() == whole.dump()
    assert (tmp_path / "best.json").read_bytes() == (finished[0] / "best.json").read_bytes()


def test_a_search_of_the_version_before_is_resumed_within_its_final_as_it_began(finished, tmp_path, monkeypatch):
    """Its record has no costs without blocks of rows, neither before nor after."""
    with monkeypatch.context() as before:
        before.setattr("evomal.runs.database.VERSION", 3)
        whole = run(tmp_path / "whole")
        with pytest.raises(StoppedError):
            run(tmp_path / "stopped", listener=StoppingListener("final"))
    resumed = run(tmp_path / "stopped")
    assert resumed.final == whole.final
    assert resumed.final.lead_on_other_rows is None
    assert resumed.final.lead == pytest.approx(finished[1].final.lead)
    with RunStore.read(tmp_path / "stopped") as one, RunStore.read(tmp_path / "whole") as other:
        assert one.dump() == other.dump()
        assert not any(trial.left_out for trial in one.trials())


def test_weights_of_those_that_reach_the_rung_are_tuned(tmp_path, monkeypatch):
    optimise, tuned = Engine.optimise, []
    monkeypatch.setattr(
        Engine, "optimise", lambda engine, trees, *rest, **named: tuned.append(len(trees))
        or optimise(engine, trees, *rest, **named),
    )  # fmt: skip
    run(tmp_path, tuned_rung=2, meta_steps=5, generations=1, finalists=0)
    with RunStore.read(tmp_path) as store:
        reached = [one for one in store.candidates() if len(one.rungs) == 2]
    assert reached
    assert sum(tuned) == len(reached)


@pytest.mark.parametrize("method", ["taylorglo", "ml3-single", "random", "gp-lfl", "baseline"])
def test_other_methods_are_trained_on_rungs(method):
    changes = {"seed_with": ()} | ({"islands": 1} if method == "random" else {})
    result = search(regression(), method=method, seed=1, **{**SHORT, **changes, "meta_steps": 2})
    assert result.headroom.baseline == "mse"
    assert result.best is None or result.best.lr > 0


def test_headroom_by_itself():
    found = evomal.headroom(regression(), tried_rates=2, training_steps=6, device="cpu")
    assert isinstance(found, Headroom)
    assert found.baseline == "mse"
    with pytest.raises(InputError, match="tried_rates must be at least 1 to measure headroom but got 0"):
        evomal.headroom(regression(), preset="paper")


def scores(*values):
    return Scores(values)


@pytest.mark.parametrize(
    ("last", "advised", "leads"),
    [
        ((0.1, 0.2, 0.3), None, True),
        ((0.2, 0.2, 0.3), "huber", False),
        ((0.2, 0.3, 0.3), "mse", True),
        ((0.3, 0.3, 0.3), "mse", False),
    ],
)
def test_a_rival_is_advised_only_if_it_leads_the_baseline(last, advised, leads):
    """Means of the winner, the best rival and the baseline on further seeds, with the same noise."""
    noise = (0.01, -0.01, 0.0)
    three = tuple(scores(*(mean + draw for draw in noise)) for mean in last)
    winner = Candidate(genome="abs(sub(y, f))", origin="initial")
    final = Final(((winner, scores(0.1)),), {"mse": scores(0.3), "huber": scores(0.2)}, {"mse": 1.0}, 0.1, three)
    assert final.leads is leads
    assert advised is None or final.advised == advised
