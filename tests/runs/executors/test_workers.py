"""Searches in several processes of this machine: the record of one process, also if they are killed or interrupted."""

import contextlib
import os
import signal
from types import SimpleNamespace

import pytest
import torch

import evomal
from evomal.engine import Engine, EngineSettings, Fitness, Rung, RungScores
from evomal.engine.scores import diverged_fitness
from evomal.errors import DeviceError, InputError
from evomal.expression import Expression
from evomal.losses.loss import WeightedTree
from evomal.methods import Failure
from evomal.runs import RunStore, display
from evomal.runs.executors import LocalExecutor, PoolExecutor, ProcessPool, check_jobs, threads_of_each, workers
from evomal.runs.executors.executors import EngineRunner
from evomal.runs.resuming import as_recorded
from evomal.runs.run_loop import search
from evomal.settings import SearchSettings
from evomal.threads import thread_count
from evomal.verdict.plan import ComparisonPlan
from tests.cli.test_app import run  # noqa: F401  (a fixture)
from tests.engine.populations import as_cost, regression
from tests.processes import is_alive
from tests.protocols import ON_RUNGS, ONE_TRAINING
from tests.searches import beginning, dump_of, search_arguments

TINY = {"population": 6, "generations": 2, "training_steps": 20, "filter_steps": 10, "finalists": 2, "device": "cpu"}
RUNGS = {**ON_RUNGS, **TINY, "seed_with": ("mse", "mae")}
LOOPED = {**ONE_TRAINING, **TINY, "meta_steps": 2, "population_mode": "looped"}
PROCESSES = 2
TREES = ("square(sub(y, f))", "abs(sub(y, f))", "square(add(y, f))", "abs(add(y, f))")


class Listener:
    """Notes what is said, and lets a worker be killed once the generations begin."""

    def __init__(self, armed):
        self.said, self._armed = [], armed

    def __getattr__(self, name):
        return lambda *arguments, **named: None

    def on_rivals(self, scores):
        self._armed.touch()

    def say(self, sentence):
        self.said.append(sentence)


def killing_once(folder):
    """The mean squared error; kills the first process but this one that computes it when the folder is armed."""
    home = os.getpid()

    def measure(outputs, targets):
        if os.getpid() != home and (folder / "armed").exists():
            with contextlib.suppress(FileExistsError):
                (folder / "killed").touch(exist_ok=False)
                os.kill(os.getpid(), signal.SIGKILL)
        return float(((outputs - targets) ** 2).mean())

    return measure


@pytest.fixture
def processes(monkeypatch):
    """The numbers of all worker processes of the test."""
    seen = set()

    class Watched(ProcessPool):
        def run(self, jobs, *, chunk=1):
            for executor in filter(None, (place.executor for place in self._places)):
                seen.update(executor._processes)
            return super().run(jobs, chunk=chunk)

    monkeypatch.setattr(workers, "ProcessPool", Watched)
    return seen


@pytest.mark.parametrize("settings", [RUNGS, LOOPED], ids=["rungs", "looped"])
def test_the_record_is_that_of_one_process_also_if_a_worker_is_killed(tmp_path, processes, settings):
    task, listener = regression().judged_by(as_cost(killing_once(tmp_path))), Listener(tmp_path / "armed")
    one, two = tmp_path / "one", tmp_path / "two"
    search(task, seed=6, folder=one, **settings)
    search(task, seed=6, folder=two, jobs=PROCESSES, listener=listener, **settings)
    assert dump_of(two) == dump_of(one)
    assert (two / "best.json").read_bytes() == (one / "best.json").read_bytes()
    assert listener.said == ["a worker process was lost: its process was killed"]
    assert len(processes) == PROCESSES + 1
    assert not any(map(is_alive, processes))


@pytest.mark.usefixtures("ctrl_c_raises")
def test_after_ctrl_c_it_is_resumed_with_any_number_of_processes(run, tmp_path, monkeypatch, processes):  # noqa: F811
    short = {"generations": 2, "finalists": 2}
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    assert run(*search_arguments(whole, **short))[0] == 0
    line = display.generation_line

    def interrupted(*arguments, **named):
        signal.raise_signal(signal.SIGINT)
        return line(*arguments, **named)

    with monkeypatch.context() as patched:
        patched.setattr(display, "generation_line", interrupted)
        code, _, err = run(*search_arguments(parts, "--jobs", PROCESSES, **short))
    assert code == 130
    assert err.splitlines()[-1] == f"evomal: interrupted; resume with `evomal resume {parts} --jobs {PROCESSES}`"
    assert len(processes) == PROCESSES
    assert not any(map(is_alive, processes))
    assert dump_of(parts) == beginning(dump_of(whole), generations=1, trials=3)
    assert run("resume", parts)[0] == 0
    assert dump_of(parts) == dump_of(whole)
    assert (parts / "best.json").read_bytes() == (whole / "best.json").read_bytes()


def test_headroom_in_several_processes_is_that_of_one(processes):
    task = regression()
    one, two = (evomal.headroom(task, jobs=jobs, **{**RUNGS, "seed_with": ()}) for jobs in (1, PROCESSES))
    assert one == two
    assert str(one) == str(two)
    assert len(processes) == PROCESSES


class Shares:
    """A pool in this process that notes how jobs are divided."""

    size, is_local = 2, True

    def __init__(self):
        self.chunks = {}

    def prepare(self, build, *data, **options):
        self.runner = build(*data, **options)
        return self.runner.describe()

    def run(self, jobs, *, chunk=1):
        self.chunks[jobs[0][0]] = chunk
        return enumerate([Failure("not run")] * len(jobs))


@pytest.mark.parametrize(
    ("mode", "expected"),
    [
        ("looped", {"evaluate": 1, "try_rates": 1, "optimise": 4, "gains": 4, "inadmissible": 7}),
        ("stacked", {"evaluate": 4, "try_rates": 4, "optimise": 4, "gains": 4, "inadmissible": 7}),
    ],
)
def test_candidates_are_divided_equally_unless_their_models_are_trained_one_by_one(mode, expected):
    pool = Shares()
    settings = SearchSettings(population=7, population_mode=mode, chunk=2, device="cpu")
    engine = evomal.runs.preparation.engine_settings(settings, evomal.methods.method_named("evomal"))
    executor = PoolExecutor(pool, [regression()], seed=0, settings=engine, trained_in=[])
    for stage in expected:
        executor.run(stage, range(7), [Rung(1, (0,))] * 7)
    assert pool.chunks == expected


class Computing(Shares):
    """A pool of that many workers, all of them in this process, which notes the losses and seeds of each."""

    def __init__(self, size):
        super().__init__()
        self.size, self.given = size, []

    def run(self, jobs, *, chunk=1):
        for first in range(0, len(jobs), chunk):
            some = jobs[first : first + chunk]
            self.given.append([len(rung.seeds) for _, _, (_, rung, _) in some])
            yield from enumerate(self.runner.run(some), first)


@pytest.mark.parametrize(
    ("losses", "seeds", "size", "given"),
    [
        (3, 5, 2, [[2, 2, 2], [3, 3, 3]]),
        (3, 5, 5, [[1, 1, 1]] * 5),
        (1, 3, 2, [[1], [2]]),
        (3, 2, 4, [[2], [2], [2]]),
        (2, 4, 4, [[2], [2], [2], [2]]),
        (4, 3, 2, [[3, 3], [3, 3]]),
    ],
)
def test_few_losses_occupy_all_workers_with_the_results_of_one(losses, seeds, size, given):
    """Also where trainings diverge, as the first loss does at the higher rate."""
    engine = EngineSettings(device="cpu", meta_steps=1, training_steps=30)
    trees = [Expression.parse(text) for text in TREES]
    given_losses = [WeightedTree(tree, [1.0] * tree.edges) for tree in trees[:losses]]
    rung = Rung(30, tuple(range(seeds)), splits=tuple(range(1, seeds + 1)), reference=None)
    columns = given_losses, [rung] * losses, [(1.0, 1e4)] * losses
    pool, report = Computing(size), Counted()
    executor = PoolExecutor(pool, [regression()], seed=0, settings=engine, trained_in=[])
    found = executor.run("try_rates", *columns, report=report)
    expected = LocalExecutor(Engine(regression(), seed=0, settings=engine)).run("try_rates", *columns)
    assert found == expected
    assert [one.lost for one in found] == [one.lost for one in expected]
    assert expected[0].lost.keys() == {1e4}
    assert report.steps == losses * 2 * seeds * 30
    assert pool.given == given


@pytest.mark.parametrize(("device", "is_local", "seeds"), [("cuda", True, 4), ("cpu", False, 4), ("cpu", True, 2)])
def test_seeds_are_divided_only_where_that_changes_no_bit(device, is_local, seeds):
    """On a GPU the bits of a training depend on its company; workers of a cluster may be of different speed."""

    class Elsewhere(Computing):
        def prepare(self, build, *data, **options):
            found = super().prepare(build, *data, **options)
            return {**found, "record": {**found["record"], "device": device}}

    tree = Expression.parse("abs(sub(y, f))")
    engine = EngineSettings(device="cpu", meta_steps=1, training_steps=5)
    pool = Elsewhere(2)
    pool.is_local = is_local
    executor = PoolExecutor(pool, [regression()], seed=0, settings=engine, trained_in=[])
    executor.run("try_rates", [WeightedTree(tree, [1.0, 1.0])], [Rung(5, (0, 1, 2, 3))], [(1.0,)])
    assert {count for row in pool.given for count in row} == {seeds}


def test_the_steps_of_several_tasks_are_those_of_one_process():
    engine = EngineSettings(device="cpu", meta_steps=1, training_steps=5)
    tasks = [regression(), regression()]
    losses = [WeightedTree(Expression.parse(text), None) for text in ("square(sub(y, f))", "abs(sub(y, f))")]
    columns = losses, [Rung(5, (0, 1))] * 2, [(1.0,)] * 2
    pooled, local = Counted(), Counted()
    PoolExecutor(Computing(2), tasks, seed=0, settings=engine, trained_in=[]).run("try_rates", *columns, report=pooled)
    LocalExecutor(Engine(tasks, seed=0, settings=engine)).run("try_rates", *columns, report=local)
    assert pooled.steps == local.steps == 2 * 2 * 2 * 5


class Counted:
    """Adds up the steps that are reported."""

    steps = 0

    def __call__(self, stage, steps):
        self.steps += steps


def test_a_loss_fails_if_it_does_with_some_of_its_seeds():
    class Failing(Computing):
        def run(self, jobs, *, chunk=1):
            for place, result in super().run(jobs, chunk=chunk):
                yield place, Failure("out of memory") if place == len(jobs) - 1 else result

    tree = Expression.parse("abs(sub(y, f))")
    engine = EngineSettings(device="cpu", meta_steps=1, training_steps=5)
    executor = PoolExecutor(Failing(2), [regression()], seed=0, settings=engine, trained_in=[])
    losses = [WeightedTree(tree, [weight, weight]) for weight in (1.0, 2.0, 3.0)]
    found = executor.run("try_rates", losses, [Rung(5, (0, 1))] * 3, [(1.0,)] * 3)
    assert [isinstance(one, RungScores) for one in found] == [True, True, False]
    assert found[2] == Failure("out of memory")


def test_a_gpu_that_fails_again_ends_the_search_and_no_candidate_is_blamed():
    class Failing(Computing):
        def run(self, jobs, *, chunk=1):
            yield 0, Failure("the GPU failed: CUDA error: busy (2 times)", is_of_device=True)

    engine = EngineSettings(device="cpu", meta_steps=1, training_steps=5)
    executor = PoolExecutor(Failing(2), [regression()], seed=0, settings=engine, trained_in=[])
    tree = Expression.parse("abs(sub(y, f))")
    with pytest.raises(DeviceError, match=r"^the GPU failed: CUDA error: busy \(2 times\)$"):
        executor.run("evaluate", [tree] * 2, [[1.0, 1.0]] * 2)


def test_the_reason_is_that_of_the_first_training_that_diverges_at_the_best_rate():
    """Which may be another rate than the best one of the part that it belongs to."""
    lost = [diverged_fitness(sentence) for sentence in ("low", "own")]
    rows = {0.1: [Fitness(1.0), lost[0], Fitness(2.0)], 1.0: [lost[1], Fitness(3.0), Fitness(4.0)]}
    whole = RungScores.of(rows, 2.0)
    parts = [RungScores.of({rate: row[some] for rate, row in rows.items()}, 2.0) for some in (slice(1), slice(1, 3))]
    assert RungScores.joined(parts) == whole
    assert whole.sentence == "own"
    assert [one.sentence for one in parts] == ["", ""]


def test_processes_do_not_load_kernels_before_they_need_them(monkeypatch):
    ran = []
    monkeypatch.setattr("evomal.runs.executors.executors.LocalExecutor.run", lambda self, stage, *_: ran.append(stage))
    settings = SearchSettings(population=4, device="cpu")
    engine = evomal.runs.preparation.engine_settings(settings, evomal.methods.method_named("evomal"))
    EngineRunner(regression(), seed=0, settings=engine, is_timed=False)
    assert ran == []
    EngineRunner(regression(), seed=0, settings=engine)
    assert "evaluate" in ran


@pytest.mark.parametrize(("jobs", "given", "expected"), [(2, None, 4), (3, None, 2), (16, None, 1), (2, 3, 3)])
def test_the_threads_are_divided_among_the_processes_unless_they_are_given(monkeypatch, jobs, given, expected):
    monkeypatch.setattr(torch, "get_num_threads", lambda: 8)
    monkeypatch.setattr(torch, "set_num_threads", lambda count: None)
    asked = []

    def no_pool(size, *, threads, listener):
        asked.append((size, threads))
        return contextlib.nullcontext()

    monkeypatch.setattr(workers, "ProcessPool", no_pool)
    assert threads_of_each(jobs, SearchSettings(threads=given)) == expected
    with ComparisonPlan.of(jobs=jobs, threads=given).running() as made:
        assert made.settings.threads == given  # not changed, so that a comparison can be resumed with other jobs
    with workers.worker_pool(SearchSettings(threads=given), jobs=jobs):
        pass
    assert asked == [(jobs, expected)] * 2


@pytest.mark.parametrize(("jobs", "threads"), [(1, 2), (2, 2), (3, None)])
def test_processes_take_the_threads_of_a_record_if_each_has_that_many(tmp_path, monkeypatch, jobs, threads):
    record = SimpleNamespace(settings={"threads": 2})
    monkeypatch.setattr(RunStore, "read", lambda folder: contextlib.nullcontext(record))
    (tmp_path / "run.sqlite").touch()
    with thread_count(4):  # without its own number of threads, the record will refuse the search
        assert as_recorded(SearchSettings(), tmp_path, jobs=jobs).threads == threads


@pytest.mark.parametrize(
    ("jobs", "executor", "sentence"),
    [
        (0, "local", "jobs must be at least 1 but got 0"),
        (1025, "local", "jobs must be at most 1024 but got 1025"),
        (1.5, "local", "jobs must be a whole number but got 1.5"),
        (2, "ray", "jobs must be 1 with executor ray, which has workers, but got 2"),
    ],
)
def test_numbers_of_jobs_that_cannot_be_are_refused(tmp_path, jobs, executor, sentence):
    settings = SearchSettings.preset("quick", executor=executor)
    for refused in (
        lambda: check_jobs(jobs, settings),
        lambda: search(regression(), folder=tmp_path / "run", jobs=jobs, settings=settings),
        lambda: evomal.headroom(regression(), jobs=jobs, settings=settings),
    ):
        with pytest.raises(InputError) as caught:
            refused()
        assert str(caught.value) == sentence
    assert not (tmp_path / "run").exists()
