"""Searches on the workers of a cluster: the record is that of one process, also if workers are lost."""

import contextlib
import itertools
import json
import os
import re
import signal
import threading
import time

import pytest
import torch
from torch import nn

from evomal.cli.display import TerminalDisplay
from evomal.engine import Engine, EngineSettings
from evomal.engine.plans import Plan
from evomal.errors import EvomalError, InputError
from evomal.methods.candidates import State
from evomal.runs import RunStore
from evomal.runs.executors import PoolExecutor, ray_pool, worker_pool
from evomal.runs.executors import cluster as cluster_module
from evomal.runs.executors.executors import chunk_sizes
from evomal.runs.run_loop import search
from evomal.settings import SearchSettings
from evomal.verdict.comparing import compare
from tests.engine.populations import SMOOTH, as_cost, normalised, regression, weights_of
from tests.protocols import ONE_TRAINING
from tests.runs.executors.clusters import NODE, SEAT, wait_until_gone, workers, workers_of
from tests.runs.executors.test_executors import raising_at
from tests.searches import dump_of

pytest.importorskip("ray")

SETTINGS = {
    **ONE_TRAINING,
    "population": 8, "generations": 2, "meta_steps": 3, "training_steps": 300, "filter_steps": 20, "device": "cpu",
    "population_mode": "looped", "threads": 1, "finalists": 2, "final_seeds": 2,
}  # fmt: skip


class SearchListener:
    """Does something once, when the first candidates of a stage are done."""

    def __init__(self, stage="", deed=None):
        self.said, self.steps = [], {"optimise": 0, "evaluate": 0}
        self._stage, self._deed = stage, deed
        self.promised, self.asked_before, self.asked = None, 0, 0
        self._is_in_a_generation = True

    def on_start(self, *, generations, steps, final_steps, recorded, metric):
        self.promised, self.asked_before = steps, self.asked

    def on_phase(self, name, steps):
        self._is_in_a_generation = False

    def on_rivals(self, scores):
        self._is_in_a_generation = True

    def on_final(self, final):
        pass

    def on_steps(self, stage, steps):
        self.asked += 1
        if not self._is_in_a_generation:
            return
        self.steps[stage] += steps
        if stage == self._stage and steps and self._deed is not None:
            deed, self._deed = self._deed, None
            deed()

    def on_generation(self, generation):
        pass

    def expect(self, steps):
        pass

    def say(self, sentence):
        self.said.append(sentence)


@pytest.fixture(scope="module", autouse=True)
def pool(cluster):
    """The workers of all searches here that ask for the same, as starting them takes seconds."""
    with worker_pool(SearchSettings(**SETTINGS, **place_of(cluster))) as opened:
        yield opened


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    """The record of the same search in this process."""
    folder = tmp_path_factory.mktemp("local")
    search(regression(), seed=6, folder=folder, **SETTINGS)
    return folder


def place_of(cluster):
    return {"executor": "ray", "address": cluster.address, "workers": 2}


def distributed(cluster, folder, listener=None, task=None, callback=None, **changes):
    settings = {**SETTINGS, **place_of(cluster), **changes}
    return search(task or regression(), seed=6, folder=folder, listener=listener, callback=callback, **settings)


def require_same(folder, local):
    """Compare two records, except for where they were computed."""
    records = []
    for place in (folder, local):
        first, *rest = dump_of(place).splitlines()
        description = json.loads(first)
        executor = description["settings"].pop("workplace")["executor"]
        records.append((description, rest, (place / "best.json").read_bytes()))
        assert executor == ("local" if place == local else "ray")
    assert records[0] == records[1]
    assert records[0][0]["settings"]["threads"] == 1


def test_the_record_is_that_of_one_process(cluster, local, tmp_path):
    listener = SearchListener()
    distributed(cluster, tmp_path, listener)
    require_same(tmp_path, local)
    assert listener.said[0] == f"2 of 2 workers: 2 × cpu on {os.uname().nodename}"
    assert listener.promised == 8 * (3 + 300)
    assert listener.asked_before > 0
    evaluated = sum(row.state is State.EVALUATED and row.origin != "elite" for row in rows_of(local))
    assert listener.steps["evaluate"] == 300 * evaluated == 300 * 9


def test_a_worker_killed_in_mid_generation_changes_nothing(cluster, local, tmp_path):
    listener = SearchListener("evaluate", kill_a_ready_worker)
    distributed(cluster, tmp_path, listener)
    require_same(tmp_path, local)
    assert any("was lost with" in sentence and sentence.endswith("its worker died") for sentence in listener.said)


def kill_a_ready_worker():
    """Kill a worker that runs jobs or waits for them; its present or next jobs are lost with it."""
    starting = workers("ray::Worker.prepare") | workers("ray::Worker.__init__")
    os.kill(min(workers() - starting), signal.SIGKILL)


def test_a_node_killed_in_mid_generation_changes_nothing(cluster, local, tmp_path, monkeypatch):
    one_on_each_node = {"num_cpus": 1.0, "num_gpus": 0.0, "resources": SEAT}
    monkeypatch.setattr(cluster_module, "_wanted", lambda *_: (2, one_on_each_node))
    (node,) = cluster.worker_nodes

    def kill_it():
        lost = workers_of(node)
        cluster.remove_node(node, allow_graceful=False)
        assert lost
        wait_until_gone(lost)  # they notice it within about a second

    listener = SearchListener("evaluate", kill_it)
    try:
        distributed(cluster, tmp_path, listener, worker_timeout=1000)  # so that it has workers of its own
    finally:
        cluster.add_node(**NODE)
    require_same(tmp_path, local)
    assert f"2 of 2 workers: 2 × cpu on {os.uname().nodename}" in listener.said
    assert any("was lost with" in sentence for sentence in listener.said)
    # There were jobs left for the killed worker when the first was done.
    assert sum(row.state is State.EVALUATED for row in rows_of(local)[: SETTINGS["population"]]) >= 4


def rows_of(folder):
    with RunStore.read(folder) as store:
        return list(store.candidates())


def hanging_at(value):
    """The mean squared error; hangs if it has that value."""

    def measure(outputs, targets):
        error = float(((outputs - targets) ** 2).mean())
        if error == value:
            time.sleep(1000)
        return error

    return measure


def test_a_candidate_that_hangs_is_recorded_with_the_reason_and_the_search_goes_on(cluster, tmp_path):
    alone = {**SETTINGS, "generations": 1, "training_steps": 50, "filters": ("symbolic", "dead")}
    search(regression().judged_by(as_cost(hanging_at(-1))), seed=6, folder=tmp_path / "local", **alone)
    expected = rows_of(tmp_path / "local")
    best = min(row.fitness for row in expected)
    task = regression().judged_by(as_cost(hanging_at(best)))
    distributed(cluster, tmp_path / "ray", task=task, worker_timeout=15, retries=0, **alone)
    found = rows_of(tmp_path / "ray")
    failed = [row for row in found if row.state is State.FAILED]
    assert [row.sentence for row in failed] == [failed[0].sentence]
    assert re.fullmatch(r"evaluate failed: it took longer than 15 s \((once|2 times)\)", failed[0].sentence)
    assert [row.genome for row in failed] == [row.genome for row in expected if row.fitness == best]
    others = [(row.genome, row.state, row.fitness, row.weights) for row in expected if row.fitness != best]
    assert [(row.genome, row.state, row.fitness, row.weights) for row in found if row not in failed] == others


def short_of_memory(folder, limit):
    """The mean squared error; runs out of memory the first time that it is below the limit."""

    def measure(outputs, targets):
        error = float(((outputs - targets) ** 2).mean())
        if error < limit:
            with contextlib.suppress(FileExistsError):
                (folder / "was short").touch(exist_ok=False)
                torch.empty(2**50)
        return error

    return measure


def test_memory_that_was_short_once_changes_nothing(cluster, tmp_path):
    alone = {**SETTINGS, "generations": 1, "training_steps": 50}
    search(regression().judged_by(as_cost(short_of_memory(tmp_path, -1))), seed=6, folder=tmp_path / "local", **alone)
    best, second = sorted({row.fitness for row in rows_of(tmp_path / "local")})[:2]
    task, listener = regression().judged_by(as_cost(short_of_memory(tmp_path, (best + second) / 2))), SearchListener()
    distributed(cluster, tmp_path / "ray", listener, task=task, **alone)
    require_same(tmp_path / "ray", tmp_path / "local")
    assert any(sentence.endswith("its worker ran out of memory") for sentence in listener.said)


def test_what_the_user_s_metric_raises_stops_the_search_with_its_type_and_place(cluster):
    def picky(outputs, targets):
        raise NotImplementedError("not for these")

    with pytest.raises(EvomalError) as caught:
        distributed(cluster, None, task=regression().judged_by(as_cost(picky)))
    place = f"{__file__}, line {picky.__code__.co_firstlineno + 1}"
    assert str(caught.value) == (
        f"the task cannot be trained with its own loss, mse: NotImplementedError: not for these ({place})"
    )
    assert "raise NotImplementedError" in str(caught.value.__cause__), "its traceback came along"


def test_a_search_on_a_cluster_is_resumed_in_one_process_with_as_many_threads(cluster, local, tmp_path):
    def stop(generation):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        distributed(cluster, tmp_path, callback=stop)
    with RunStore.read(tmp_path) as store:
        assert len(store.complete_chunks()) == 1
    with pytest.raises(InputError, match="threads was 1 but is 2"):
        search(regression(), seed=6, folder=tmp_path, **{**SETTINGS, "threads": 2})
    search(regression(), seed=6, folder=tmp_path, **SETTINGS)
    assert [row.fitness for row in rows_of(tmp_path)] == [row.fitness for row in rows_of(local)]


def test_what_an_engine_refuses_is_refused_in_its_words(cluster):
    with pytest.raises(InputError, match=r"^population_mode stacked is not possible for this model: training changes"):
        distributed(cluster, None, task=regression(normalised), population_mode="stacked", workers=1)


def test_a_task_that_cannot_be_sent_is_one_sentence(cluster):
    rows = (row for row in range(3))
    with pytest.raises(InputError, match=r"^task\.model\.rows is a generator, which cannot be sent to a worker: "):
        distributed(cluster, None, task=regression(lambda: rows and nn.Linear(4, 1)), workers=1)


def test_a_comparison_is_that_of_one_process(cluster, tmp_path, monkeypatch):
    found, listener, setups, kind = {}, SearchListener(), [], ray_pool._Setup
    monkeypatch.setattr(ray_pool, "_Setup", lambda *values: setups.append(kind(*values)) or setups[-1])
    announced = []
    listener.announce = lambda sentence: announced.append((sentence, listener.asked))
    for place in ({}, place_of(cluster)):
        folder = tmp_path / place.get("executor", "local")
        settings = {**SETTINGS, "population": 4, "generations": 1, "training_steps": 20, "final_steps": 40, **place}
        found[folder] = compare(
            regression(), methods=["taylorglo"], losses=["mae"], seeds=2, search_seeds=2, tune_lr=2, folder=folder,
            listener=listener, **settings,
        )  # fmt: skip
    (asked,) = [asked for sentence, asked in announced if sentence.endswith("rescaled")][1:]
    assert listener.asked > asked  # also while the workers train
    prepared = [build for build, _ in itertools.groupby(setup.build for setup in setups)]
    assert len(prepared) == 3  # two searches, and the trainings of all variants
    assert len({item.key for setup in setups for item in setup.data}) == 1  # the task was sent once
    (local, one), (remote, other) = found.items()
    assert one.to_dict() == other.to_dict()
    first, *rest = (local / "trainings.jsonl").read_text().splitlines()
    assert (remote / "trainings.jsonl").read_text().splitlines()[0] == first
    assert sorted((remote / "trainings.jsonl").read_text().splitlines()[1:]) == sorted(rest)
    assert len(rest) == 4 * 2 + (4 * 2 * 2 + 4 * 3) + 4 * 2 + 3 * 2  # four losses, settled with three seeds each
    for seed in (0, 1):
        records = [dump_of(folder / "searches" / f"taylorglo-{seed}").splitlines()[1:] for folder in found]
        assert records[0] == records[1]


class Deadly(nn.L1Loss):
    """Kills every process but the one that has made it, which looks at what the loss computes."""

    def __init__(self):
        super().__init__()
        self.home = os.getpid()

    def forward(self, output, target):
        if os.getpid() != self.home:
            os.kill(os.getpid(), signal.SIGKILL)
        return super().forward(output, target)


def test_a_loss_that_kills_its_workers_ends_a_comparison_in_a_sentence_after_the_others(cluster, tmp_path):
    sentence = r"^training with Deadly, seed 1000, failed: its worker died \(once\)$"
    place = {**SETTINGS, **place_of(cluster), "retries": 0, "workers": 1}
    with pytest.raises(EvomalError, match=sentence):
        compare(regression(), losses=[Deadly()], seeds=1, rescale=False, final_steps=10, folder=tmp_path, **place)
    assert len((tmp_path / "trainings.jsonl").read_text().splitlines()) == 2


def test_stacked_the_record_is_that_of_one_process_also_where_a_candidate_raises(cluster, tmp_path):
    stacked = {**SETTINGS, "generations": 1, "training_steps": 50, "population_mode": "stacked", "chunk": 2}
    search(regression(), seed=6, folder=tmp_path / "clean", **stacked)
    fitnesses = [row.fitness for row in rows_of(tmp_path / "clean") if row.state is State.EVALUATED]
    task = regression().judged_by(as_cost(raising_at(fitnesses[1])))
    search(task, seed=6, folder=tmp_path / "local", **stacked)
    distributed(cluster, tmp_path / "ray", task=task, **stacked)
    require_same(tmp_path / "ray", tmp_path / "local")
    failed = [row for row in rows_of(tmp_path / "ray") if row.state is State.FAILED]
    assert [row.sentence for row in failed] == ["evaluate failed: an odd error"]


class NeverInWorkers:
    """A model that can be built only in the process that created this object."""

    def __init__(self):
        self._home = os.getpid()

    def __call__(self):
        if os.getpid() != self._home:
            time.sleep(1000)
        return nn.Linear(4, 1)


@pytest.mark.usefixtures("ctrl_c_raises")
def test_ctrl_c_once_is_noticed_while_workers_start(cluster, tmp_path, capsys):
    begin = time.monotonic()
    pressed = threading.Timer(1, os.kill, (os.getpid(), signal.SIGINT))
    with TerminalDisplay() as listener, pytest.raises(KeyboardInterrupt):  # noqa: PT012 - the handler is there by now
        pressed.start()
        distributed(cluster, tmp_path, listener, task=regression(NeverInWorkers()))
    assert 1 < time.monotonic() - begin < 500  # the model would take 1 000
    assert capsys.readouterr().err == "evomal: stopping after this step; press Ctrl-C again to stop at once\n"


class FakePool:
    """A pool without workers; what the user is told is kept."""

    is_local = False

    def __init__(self, size, chunk):
        self.size, self.said, self._chunk = size, [], chunk

    def prepare(self, build, *data, **options):
        return {"chunk_sizes": {"evaluate": self._chunk, "try_rates": 16}}

    def say_once(self, sentence):
        self.said.append(sentence)


@pytest.mark.parametrize(
    ("size", "chunk", "words"),
    [
        (2, 6, "1 chunk of 6, so only 1 of 2 workers has work: --set chunk=3 or"),
        (9, 25, "1 chunk of 6, so only 1 of 9 workers has work: --set chunk=1 or"),
        (4, 3, "2 chunks of 3, so only 2 of 4 workers have work: --set chunk=1 or"),
        (2, 3, None),
        (9, 1, None),
    ],
)
def test_with_fewer_chunks_than_workers_the_user_is_told_how_to_have_more(size, chunk, words):
    pool = FakePool(size, chunk)
    PoolExecutor(pool, [], seed=0, settings=EngineSettings(population=6))
    sentence = f"candidates are stacked in {words} --set population_mode=looped uses more"
    assert pool.said == ([] if words is None else [sentence])


@pytest.mark.parametrize(
    ("size", "words"),
    [(2, None), (3, "2 chunks of 16, so only 2 of 3 workers have work: --set population=48 or")],
)
def test_candidates_on_rungs_have_chunks_of_their_own(size, words):
    pool = FakePool(size, 32)
    PoolExecutor(pool, [], seed=0, settings=EngineSettings(population=32), trained_in=["try_rates"])
    sentence = f"candidates are stacked in {words} --set population_mode=looped uses more"
    assert pool.said == ([] if words is None else [sentence])


@pytest.mark.parametrize(("mode", "unit"), [("looped", 1), ("stacked", 4)])
def test_chunks_are_single_candidates_or_those_of_the_engine(mode, unit):
    settings = EngineSettings(population=10, chunk=4, population_mode=mode, device="cpu")
    plans = Engine(regression(), seed=0, settings=settings).plans
    found = chunk_sizes(plans, "cpu")
    assert (found["optimise"], found["evaluate"], found["gains"], found["gradient_norms"]) == (unit, unit, 1, 1)
    assert found["inadmissible"] == 0
    assert (found["optimise_networks"], found["evaluate_losses"]) == (1, 1)
    assert chunk_sizes(plans, "cuda")["gains"] == 0


def test_chunks_of_several_tasks_are_cut_where_each_of_them_is():
    sizes = [("stacked", 6, 4), ("stacked", 8, 6), ("looped", 1, 1)]
    plans = [
        Plan(mode, "", meta, training, 0, trial_chunk=9, evaluated_rows=9, meta_bytes=1, trial_bytes=1)
        for mode, meta, training in sizes
    ]
    assert chunk_sizes(plans[:2], "cpu")["evaluate"] == 12
    assert chunk_sizes(plans[:2], "cpu")["optimise"] == 6
    assert chunk_sizes(plans, "cpu")["optimise"] == 1
    assert chunk_sizes(plans, "cpu")["evaluate"] == 12


@pytest.mark.parametrize("mode", ["looped", "stacked"])
def test_filters_give_each_candidate_the_same_bits_alone_and_among_others(mode):
    trees, weights = SMOOTH * 3, weights_of(SMOOTH * 3)
    settings = EngineSettings(population=15, filter_steps=20, population_mode=mode, device="cpu")
    engine = Engine(regression(), seed=0, settings=settings)
    for stage in (engine.inadmissible, engine.gains, engine.gradient_norms):
        together = stage(trees, weights)
        assert together == [stage([tree], [row])[0] for tree, row in zip(trees, weights, strict=True)]


def test_stacked_candidates_have_the_same_bits_in_whole_chunks():
    trees, weights = SMOOTH * 2, weights_of(SMOOTH * 2)
    settings = EngineSettings(
        population=10, chunk=4, meta_steps=3, training_steps=10, population_mode="stacked", device="cpu"
    )
    engine = Engine(regression(), seed=0, settings=settings)
    for stage in (engine.optimise, engine.evaluate):
        pieces = [stage(trees[start : start + 4], weights[start : start + 4]) for start in (8, 4, 0)]
        assert stage(trees, weights) == pieces[2] + pieces[1] + pieces[0]
