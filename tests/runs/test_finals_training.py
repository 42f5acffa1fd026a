"""Rivals before the generations and the final after them, as whole searches have them."""

import json
import math
import re

import pytest

import evomal
from evomal.engine import Engine
from evomal.losses import load_loss
from evomal.methods.baseline import RIVALS
from evomal.runs import RunStore
from evomal.runs.run_loop import search
from tests.engine.populations import classification, regression
from tests.protocols import ONE_TRAINING
from tests.searches import dump_of

SHORT = {
    **ONE_TRAINING,
    "population": 6, "generations": 3, "meta_steps": 3, "training_steps": 10, "filter_steps": 20, "device": "cpu",
    "population_mode": "looped", "finalists": 4, "final_seeds": 2,
}  # fmt: skip


def run(folder=None, task=None, **changes):
    return search(task or regression(), seed=1, folder=folder, **{**SHORT, **changes})


def trained(loss, seed, task=None):
    return evomal.train(task or regression(), loss, seed=seed, steps=SHORT["training_steps"], device="cpu").validation


@pytest.mark.parametrize("preset", ["quick", "paper"])
def test_rivals_are_trained_as_candidates_are(preset, tmp_path):
    result = search(regression(), seed=1, folder=tmp_path, preset=preset, **{**SHORT, "generations": 1})
    assert list(result.rivals) == ["mse", "mae", "huber"]
    assert result.rivals == pytest.approx({name: trained(name, 1) for name in result.rivals}, rel=1e-6)
    with RunStore.read(tmp_path) as store:
        recorded = [trial for trial in store.trials() if trial.stage == "rivals"]
    assert {trial.loss: trial.score for trial in recorded} == result.rivals
    assert {trial.seed for trial in recorded} == {1}


def test_rivals_are_those_of_the_kind():
    result = run(task=classification(), generations=1, finalists=0)
    assert tuple(result.rivals) == RIVALS["classification"]
    assert result.rivals["focal"] == pytest.approx(trained("focal", 1, classification()), abs=1e-6)
    assert all(math.isfinite(score) for score in result.rivals.values())


@pytest.mark.parametrize("mode", ["looped", "stacked"])
def test_finalists_and_rivals_are_trained_again_with_fresh_seeds(mode, tmp_path):
    result = run(tmp_path, population_mode=mode)
    final = result.final
    assert 2 <= len(final.candidates) <= 4
    for candidate, scores in final.candidates:
        loss = evomal.ExpressionLoss(candidate.genome, weights=candidate.weights, kind="regression")
        assert scores.values == pytest.approx([trained(loss, seed) for seed in (3000, 3001)], rel=1e-4)
    assert final.rivals["huber"].values == pytest.approx([trained("huber", seed) for seed in (3000, 3001)], rel=1e-5)
    means = [scores.mean for _, scores in final.candidates]
    winner = final.candidates[means.index(min(means))][0]
    assert (str(result.best.expression), result.best.weights) == (winner.genome, winner.weights)
    assert result.best.fitness == winner.fitness
    assert result.best.mean == min(means)
    saved = load_loss(tmp_path / "best.json")
    assert str(saved.expression) == winner.genome
    assert saved.provenance["chosen"] == f"the best mean of 2 fresh seeds among {len(means)} finalists"
    assert saved.provenance["mean"] == min(means)


def test_the_lucky_one_does_not_win(monkeypatch):
    """Whose one training was the best, but whose others are not, is not called the best."""
    evaluate, seeds = Engine.evaluate, []

    def unlucky(engine, expressions, weights, *, seed=None, report=None):
        found = evaluate(engine, expressions, weights, seed=seed, report=report)
        seeds.append(seed)
        if seed is not None:  # finalists come in the order of the search's ranking
            found[0] = type(found[0])(1e6)
        return found

    monkeypatch.setattr(Engine, "evaluate", unlucky)
    result = run()
    assert seeds[-2:] == [3000, 3001]
    assert result.final.candidates[0][0].fitness < result.best.fitness
    assert result.best.mean < 1e6


def test_the_paper_has_no_final_and_says_what_its_best_is(tmp_path):
    settings = {name: value for name, value in SHORT.items() if name not in ("finalists", "final_seeds")}
    result = search(regression(), seed=1, folder=tmp_path, preset="paper", **settings)
    assert result.final is None
    assert result.best.scores == ()
    assert result.best.fitness == min(entry.best.fitness for entry in result.history if entry.best is not None)
    assert load_loss(tmp_path / "best.json").provenance["chosen"] == "the best of one training each"
    with RunStore.read(tmp_path) as store:
        assert {trial.stage for trial in store.trials()} == {"rivals"}


def test_without_survivors_there_is_no_final():
    result = run(generations=1, lr=1e-30)
    assert (result.best, result.final) == (None, None)
    assert list(result.rivals) == ["mse", "mae", "huber"]


class StoppedError(Exception):
    pass


class Stopping:
    """Stops a search at the first report of a phase, or of the training with a seed."""

    def __init__(self, phase, reports=1):
        self._phase, self._left, self._now = phase, reports, ""

    def on_start(self, **_): ...

    def on_phase(self, name, steps):
        self._now = name

    def on_steps(self, stage, steps):
        if self._now == self._phase:
            self._left -= 1
            if self._left == 0:
                raise StoppedError

    def on_rivals(self, scores):
        self._now = ""

    def on_generation(self, generation): ...

    def on_final(self, final): ...

    def say(self, sentence): ...


@pytest.mark.parametrize("method", ["evomal", "taylorglo", "ml3"])
@pytest.mark.parametrize(("phase", "reports", "seeds"), [("rivals", 2, 0), ("final", 1, 0), ("final", 9, 1)])
def test_stopped_outside_the_generations_and_resumed_it_is_the_same(tmp_path, method, phase, reports, seeds):
    whole = run(tmp_path / "whole", method=method)
    if phase == "final" and reports > 1:
        reports = 3 + len(whole.final.candidates) + 2  # in the training of the second seed
    with pytest.raises(StoppedError):
        run(tmp_path / "parts", method=method, listener=Stopping(phase, reports))
    with RunStore.read(tmp_path / "parts") as store:
        assert store.ending is None
        assert len({trial.seed for trial in store.trials() if trial.stage == "final"}) == seeds
        assert (len(store.trials()) == 0) == (phase == "rivals")
    resumed = run(tmp_path / "parts", method=method)
    assert dump_of(tmp_path / "parts") == dump_of(tmp_path / "whole")
    assert (resumed.best, resumed.final, resumed.rivals) == (whole.best, whole.final, whole.rivals)
    files = [json.loads((tmp_path / name / "best.json").read_text()) for name in ("whole", "parts")]
    assert files[0] == files[1]
    again = run(tmp_path / "parts", method=method, listener=Stopping("rivals", 1))
    assert (again.best, again.final, again.rivals) == (whole.best, whole.final, whole.rivals)


def test_a_budget_ends_the_generations_but_not_without_a_final(tmp_path):
    early = run(tmp_path / "parts", max_evaluations=1)
    assert len(early.history) < 3
    assert re.fullmatch(
        r"max_evaluations is 1, reached with \d+ candidates?; the final was run nevertheless", early.ending
    )
    assert early.best.mean == min(scores.mean for _, scores in early.final.candidates)
    with RunStore.read(tmp_path / "parts") as store:
        first, ending = store.trials(), store.ending
    assert ending is None
    assert {trial.stage for trial in first} == {"rivals", "final"}
    again = run(tmp_path / "parts", max_evaluations=1, listener=Stopping("final"))
    assert (again.best, again.ending) == (early.best, early.ending)
    whole = run(tmp_path / "whole")
    resumed = run(tmp_path / "parts")
    assert (resumed.best, resumed.final, resumed.ending) == (whole.best, whole.final, "all 3 generations are done")
    # But for the first line, which has the budgets that each was begun with and resumed with.
    assert dump_of(tmp_path / "parts").splitlines()[1:] == dump_of(tmp_path / "whole").splitlines()[1:]
    assert (tmp_path / "parts" / "best.json").read_bytes() == (tmp_path / "whole" / "best.json").read_bytes()


def test_a_rival_that_diverges_has_no_score_and_the_search_continues():
    result = run(lr=1e12, generations=1)
    assert result.rivals["mse"] == math.inf
    assert "mse diverged" in "".join(text for _, text in evomal.runs.results.summary_lines(result))
