"""Workers that run jobs, are lost, replaced and ended."""

import contextlib
import os
import time

import pytest
import torch

from evomal.errors import EvomalError, InputError
from evomal.methods import Failure
from evomal.runs.executors import worker_pool
from evomal.runs.executors.ray_pool import RayPool, reason_of
from evomal.settings import SearchSettings
from tests.runs.executors.clusters import Doubling, Slow, workers

ray = pytest.importorskip("ray")


class Listener:
    """Keeps the sentences, and raises an error when it is asked for the last time."""

    def __init__(self, asked=None):
        self.said, self.times, self._asked = [], [], asked

    def say(self, sentence):
        self.said.append(sentence)

    def on_steps(self, stage, steps):
        self.times.append(time.monotonic())
        if len(self.times) == self._asked:
            raise StoppedError


class StoppedError(Exception):
    pass


@pytest.fixture(scope="module")
def listener():
    return Listener()


@pytest.fixture(scope="module")
def pool(cluster, listener):
    settings = SearchSettings(executor="ray", address=cluster.address, workers=2, retries=1)
    with worker_pool(settings, listener) as opened:
        yield opened


@pytest.fixture
def said(listener):
    listener.said.clear()
    return listener.said


def results_of(pool, numbers, chunk=1):
    results = dict(pool.run(numbers, chunk=chunk))
    return [results[index] for index in range(len(numbers))]


def test_every_job_has_one_result(pool):
    assert pool.prepare(Doubling, 2) == {"factor": 2}
    assert sorted(pool.run(range(40))) == [(index, 2 * index) for index in range(40)]
    assert list(pool.run([])) == []


def test_results_come_in_before_all_jobs_are_done(pool, monkeypatch):
    pool.prepare(Doubling, 2)
    monkeypatch.setattr(pool, "_timeout", 1000.0)
    results = pool.run([1, 2, "hangs"])
    assert [next(results), next(results)] == [(0, 2), (1, 4)]
    results.close()
    assert pool._workers == []
    assert results_of(pool, [1]) == [2]


def test_the_same_workers_are_prepared_for_something_else(pool):
    pool.prepare(Doubling, 4)
    before = workers()
    assert len(before) == 2
    assert pool.prepare(Doubling, 3) == {"factor": 3}
    assert results_of(pool, [1, 2]) == [3, 6]
    assert workers() == before


def test_workers_that_are_prepared_are_not_prepared_again(pool):
    pool.prepare(Doubling, 3)
    setup = pool._setup
    assert pool.prepare(Doubling, 3) == {"factor": 3}
    assert pool._setup is setup
    assert pool.prepare(Doubling, 3, own=1) == {"factor": 3, "own": 1}
    assert pool._setup is not setup


def test_data_that_is_used_again_is_sent_once(pool):
    first, second = [1], [1]
    pool.prepare(Doubling, first)
    (sent,) = pool._setup.data
    pool.prepare(Doubling, first, own=1)
    assert pool._setup.data == [sent]
    pool.prepare(Doubling, second, own=1)
    assert pool._setup.data[0].key != sent.key
    assert len(pool._data) == 1


def test_a_context_inside_another_has_the_same_workers(pool, cluster):
    settings = SearchSettings(executor="ray", address=cluster.address, workers=2, retries=1)
    with worker_pool(settings.with_changes(population=7)) as inner:
        assert inner is pool


def test_a_job_that_kills_its_workers_is_given_up_and_the_others_are_done(pool, said):
    pool.prepare(Doubling, 2)
    said.clear()
    assert results_of(pool, [1, "dies", 3, 4, 5], chunk=3) == [2, Failure("its worker died (2 times)"), 6, 8, 10]
    # With its chunk, which is cut to find the job, and twice by itself.
    assert sum("was lost with" in sentence and "its worker died" in sentence for sentence in said) == 3


def test_a_job_that_needs_more_memory_than_there_is_is_run_elsewhere_and_given_up(pool, said):
    pool.prepare(Doubling, 2)
    said.clear()
    assert results_of(pool, [1, "is too large", 3]) == [2, Failure("its worker ran out of memory (2 times)"), 6]
    assert sum("was lost with" in sentence and "out of memory" in sentence for sentence in said) == 2


def test_a_job_whose_gpu_fails_is_run_elsewhere_and_given_up(pool, said):
    pool.prepare(Doubling, 2)
    said.clear()
    first, given_up, last = results_of(pool, [1, "meets a broken GPU", 3])
    assert (first, given_up, last) == (2, Failure("the GPU failed: CUDA error: busy (2 times)"), 6)
    assert given_up.is_of_device
    assert sum("was lost with 1 job: the GPU failed: CUDA error: busy" in sentence for sentence in said) == 2


def too_large_once(factor, *, folder):
    """Doubling, for which the first worker has too little memory."""
    with contextlib.suppress(FileExistsError):
        (folder / "was short").touch(exist_ok=False)
        torch.empty(2**50)
    return Doubling(factor)


def test_a_lack_of_memory_while_a_worker_is_prepared_costs_that_worker_only(pool, said, tmp_path):
    assert pool.prepare(too_large_once, 2, folder=tmp_path) == {"factor": 2}
    assert results_of(pool, [1, 2]) == [2, 4]
    assert sum("was lost while" in sentence and "out of memory" in sentence for sentence in said) == 1


def test_a_job_that_hangs_is_given_up_and_the_others_are_done(pool, monkeypatch):
    pool.prepare(Doubling, 2)
    monkeypatch.setattr(pool, "_timeout", 4.0)  # long enough for the others on a busy machine
    numbers = [1, 2, "hangs", 4, 5, 6]
    assert results_of(pool, numbers) == [2, 4, Failure("it took longer than 4 s (2 times)"), 8, 10, 12]


def second_is_slow(folder, name, seconds):
    (folder / name).mkdir()
    return {"folder": str(folder / name), "seconds": seconds}


def test_a_slow_worker_is_not_waited_for_and_joins_when_it_is_ready(pool, tmp_path, monkeypatch):
    pool.prepare(Doubling, 5)  # so that both have started
    monkeypatch.setattr(pool, "_all_expected_until", 0.0)
    assert pool.prepare(Slow, 2, **second_is_slow(tmp_path, "one", 10))["tag"] == "one"
    assert len(pool._ready()) == 1
    since = time.monotonic()
    assert pool.prepare(Slow, 2, **second_is_slow(tmp_path, "two", 0))["tag"] == "two"
    assert time.monotonic() - since < 500
    deadline = time.monotonic() + 100
    while len(pool._ready()) < 2:
        assert results_of(pool, [1, 2, 3]) == [2, 4, 6]
        assert time.monotonic() < deadline
        time.sleep(0.1)


def test_a_worker_that_hangs_while_it_is_prepared_is_replaced(pool, said, tmp_path, monkeypatch):
    pool.prepare(Doubling, 6)  # so that both have started
    monkeypatch.setattr(pool, "_all_expected_until", 0.0)
    pool.prepare(Slow, 2, **second_is_slow(tmp_path, "one", 1000))
    (late,) = [worker for worker in pool._workers if worker not in pool._ready()]
    late.since -= 601
    said.clear()
    assert results_of(pool, [1, 2]) == [2, 4]
    assert late not in pool._workers
    assert said[0] == "a worker was replaced: it was not ready within 600 s"


def test_a_job_runner_that_cannot_be_built_is_one_sentence(cluster):
    settings = SearchSettings(executor="ray", address=cluster.address, workers=1)
    with (
        worker_pool(settings) as pool,
        pytest.raises(EvomalError, match=r"^a worker cannot start: KeyError: 'odd'$"),
    ):
        pool.prepare(refusing, 2)


def refusing(factor):
    raise KeyError("odd")


def test_workers_that_die_before_they_are_ready_are_one_sentence(cluster):
    settings = SearchSettings(executor="ray", address=cluster.address, workers=1, retries=0)
    with (
        worker_pool(settings) as pool,
        pytest.raises(EvomalError, match=r"^workers are lost before they are ready: its worker died$"),
    ):
        pool.prepare(os._exit, 1)


def test_workers_must_agree(cluster):
    settings = SearchSettings(executor="ray", address=cluster.address, workers=2)
    with (
        worker_pool(settings) as pool,
        pytest.raises(EvomalError, match=r"^a worker on \S+ has own [0-9]+ instead of "),
    ):
        pool.prepare(disagreeing, 2)


def disagreeing(factor):
    return Doubling(factor, own=os.getpid())


@pytest.fixture
def waiting(pool):
    """A pool for which the cluster has no room."""
    opened = RayPool(2, resources={"num_cpus": 100.0, "num_gpus": 0.0}, timeout=None, retries=1, patience=2.0)
    yield opened
    opened.close()


def test_without_room_for_a_worker_the_user_is_told_and_then_the_pool_gives_up(waiting):
    listener = Listener()
    with waiting.reporting_to(listener):
        for wait in (lambda: waiting.prepare(Doubling, 2), lambda: list(waiting.run([1]))):
            with pytest.raises(EvomalError, match=r"^no worker of the Ray cluster was ready within 2 s$"):
                wait()
    assert listener.said == ["0 of 2 workers: waiting until the cluster has room for one"]
    assert waiting._workers == []


def test_the_listener_can_stop_while_workers_are_waited_for(waiting, monkeypatch):
    monkeypatch.setattr(waiting, "_patience", 1000.0)
    for wait in (lambda: waiting.prepare(Doubling, 2), lambda: list(waiting.run([1]))):
        listener = Listener(asked=3)
        with waiting.reporting_to(listener), waiting.reporting_to(None), pytest.raises(StoppedError):
            wait()
        assert listener.times[2] - listener.times[0] < 100


def test_a_defect_is_raised_and_ends_the_workers(cluster):
    with worker_pool(SearchSettings(executor="ray", address=cluster.address, workers=1)) as pool:
        pool.prepare(Doubling, 2)
        with pytest.raises(AttributeError, match="there is no such thing"):
            results_of(pool, [1, "a defect"])
        assert pool._workers == []


@pytest.mark.parametrize(
    ("changes", "needs"), [({"threads": 5}, "5 processors"), ({"gpus_per_worker": 0.5}, "1 processor and 0.5 GPUs")]
)
def test_a_worker_that_fits_nowhere_is_one_sentence(cluster, changes, needs):
    settings = SearchSettings(executor="ray", address=cluster.address, **changes)
    with pytest.raises(InputError) as caught, worker_pool(settings):
        pass
    assert str(caught.value) == f"a worker needs {needs}, but no node of the cluster has them"


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ray.exceptions.OutOfMemoryError("killed"), "its worker ran out of memory"),
        (ray.exceptions.NodeDiedError("gone"), "its worker's machine was lost"),
        (ray.exceptions.WorkerCrashedError(), "its worker died"),
        (ray.exceptions.ActorDiedError(), "its worker died"),
    ],
)
def test_errors_of_ray_become_a_few_words_in_the_record(error, reason):
    assert reason_of(error) == reason
