"""Searches in several processes of this machine: the record of one process, also if they are killed or interrupted."""

import contextlib
import os
import signal
from types import SimpleNamespace

import pytest
import torch

import evomal
from evomal.errors import InputError
from evomal.methods import Failure
from evomal.runs import RunStore, display
from evomal.runs.executors import PoolExecutor, ProcessPool, check_jobs, threads_of_each, workers
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
            for executor in filter(None, self._executors):
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
        executor.run(stage, range(7))
    assert pool.chunks == expected


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
