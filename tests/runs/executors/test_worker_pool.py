"""Workers that are asked, lost, replaced, and let go."""

import contextlib
import functools
import os
import time

import pytest
import torch

from evomal.errors import EvomalError, InputError
from evomal.methods import Failure
from evomal.runs.executors import worker_pool as module
from evomal.runs.executors.cluster import crew_of
from evomal.runs.executors.worker_pool import Crew
from evomal.settings import SearchSettings
from tests.runs.executors.clusters import Doubling, Slow, workers

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def crew(cluster):
    said = []
    settings = SearchSettings(executor="ray", address=cluster.address, workers=2, retries=1)
    with crew_of(settings, [], said.append) as hired:
        hired.said = said
        yield hired


def asked(crew, numbers, unit=1, **options):
    return crew.spread(
        len(numbers), unit=unit, order=lambda rows: [numbers[row] for row in rows], name="numbers", **options
    )


def test_rows_come_back_in_order_and_are_told_as_they_come(crew):
    assert crew.teach(Doubling, [2], "number") == {"factor": 2}
    rows, told = list(range(40)), {}
    assert asked(crew, rows, done=lambda some, found: told.update(zip(some, found, strict=True))) == [
        2 * row for row in rows
    ]
    assert told == {row: 2 * row for row in rows}
    assert asked(crew, []) == []


def test_the_same_workers_are_taught_something_else(crew):
    crew.teach(Doubling, [2], "number")
    before = workers()
    assert crew.teach(Doubling, [3], "number") == {"factor": 3}
    assert asked(crew, [1, 2]) == [3, 6]
    assert workers() == before


def test_what_all_can_do_already_is_not_taught_again(crew):
    crew.teach(Doubling, [3], "number")
    lesson = crew.lesson
    assert crew.teach(Doubling, [3], "number") == {"factor": 3}
    assert crew.lesson == lesson
    assert crew.teach(functools.partial(Doubling, own=1), [3], "number") == {"factor": 3, "own": 1}
    assert crew.lesson == lesson + 1


def test_a_block_inside_another_has_the_same_workers(crew, cluster):
    settings = SearchSettings(executor="ray", address=cluster.address, workers=2, retries=1)
    with crew_of(settings.with_changes(population=7), []) as inner:
        assert inner is crew


def test_who_kills_workers_is_given_up_and_the_others_are_done(crew):
    crew.teach(Doubling, [2], "number")
    crew.said.clear()
    assert asked(crew, [1, "dies", 3, 4, 5]) == [2, Failure("its worker died (2 times)"), 6, 8, 10]
    assert sum("was lost with" in sentence and "its worker died" in sentence for sentence in crew.said) == 2


def test_who_needs_more_memory_than_there_is_is_tried_elsewhere_and_given_up(crew):
    crew.teach(Doubling, [2], "number")
    crew.said.clear()
    assert asked(crew, [1, "is too large", 3]) == [2, Failure("its worker ran out of memory (2 times)"), 6]
    assert sum("was lost with" in sentence and "out of memory" in sentence for sentence in crew.said) == 2


def too_large_once(shared, *, folder):
    """Doubling, for which the first to build it has not memory enough."""
    with contextlib.suppress(FileExistsError):
        (folder / "was short").touch(exist_ok=False)
        torch.empty(2**50)
    return Doubling(shared)


def test_memory_that_is_short_while_a_worker_begins_costs_that_worker_only(crew, tmp_path):
    crew.said.clear()
    assert crew.teach(functools.partial(too_large_once, folder=tmp_path), [2], "number") == {"factor": 2}
    assert asked(crew, [1, 2]) == [2, 4]
    assert sum("was lost" in sentence and "out of memory" in sentence for sentence in crew.said) == 1


def test_who_hangs_is_given_up_and_the_others_are_done(crew, monkeypatch):
    crew.teach(Doubling, [2], "number")
    monkeypatch.setattr(crew, "_timeout", 4.0)  # long enough for the others on a busy machine
    numbers = [1, 2, "hangs", 4, 5, 6]
    assert asked(crew, numbers) == [2, 4, Failure("it took longer than 4 s (2 times)"), 8, 10, 12]


def test_rows_that_must_stay_together_are_cut_only_to_find_who_is_to_blame(crew):
    crew.teach(Doubling, [2], "number")
    assert asked(crew, [1, "dies", 3], unit=3) == [2, Failure("its worker died (2 times)"), 6]


def second_is_slow(folder, name, seconds):
    (folder / name).mkdir()
    return functools.partial(Slow, folder=str(folder / name), seconds=seconds)


def test_a_worker_still_beginning_is_missed_once_and_taught_the_next_ability_when_it_can_be(
    crew, tmp_path, monkeypatch
):
    crew.teach(Doubling, [2], "number")  # so that both are there
    monkeypatch.setattr(module, "_GRACE", 1.5)
    assert crew.teach(second_is_slow(tmp_path, "one", 10), [2], "number")["tag"] == "one"
    assert sorted(hand.was_missed for hand in crew._hands) == [False, True]
    monkeypatch.setattr(module, "_GRACE", 1000)
    since = time.monotonic()
    assert crew.teach(second_is_slow(tmp_path, "two", 0), [2], "number")["tag"] == "two"
    assert time.monotonic() - since < 500  # it is not waited for a second time
    deadline = time.monotonic() + 100
    while len(crew._ready()) < 2:
        assert asked(crew, [1, 2, 3]) == [2, 4, 6]
        assert time.monotonic() < deadline
        time.sleep(0.1)
    assert not any(hand.was_missed for hand in crew._hands)


def test_a_worker_that_hangs_while_it_begins_is_replaced(crew, tmp_path, monkeypatch):
    crew.teach(Doubling, [2], "number")
    monkeypatch.setattr(module, "_GRACE", 0.5)
    crew.teach(second_is_slow(tmp_path, "one", 1000), [2], "number")
    (late,) = [hand for hand in crew._hands if hand.was_missed]
    crew.said.clear()
    with monkeypatch.context() as short:
        short.setattr(crew, "_patience", 0.1)
        assert asked(crew, [1, 2]) == [2, 4]
    assert late not in crew._hands
    assert crew.said[0] == "a worker was given up: it had not begun within 0.1 s"


def test_an_ability_that_cannot_be_built_is_one_sentence(cluster):
    settings = SearchSettings(executor="ray", address=cluster.address, workers=1)
    with (
        crew_of(settings, []) as crew,
        pytest.raises(EvomalError, match=r"^a worker could not begin: KeyError: 'odd'$"),
    ):
        crew.teach(refusing, [2], "number")


def refusing(shared):
    raise KeyError("odd")


def test_workers_must_agree(cluster):
    settings = SearchSettings(executor="ray", address=cluster.address, workers=2)
    with crew_of(settings, []) as crew, pytest.raises(EvomalError, match=r"^a worker on \S+ has own [0-9]+ and not "):
        crew.teach(differing, [2], "number")


def differing(shared):
    return Doubling(shared, own=os.getpid())


class StoppedError(Exception):
    pass


@pytest.fixture
def nobody(crew):
    """A crew for which the cluster has no room."""
    hired = Crew(2, needs={"num_cpus": 100.0, "num_gpus": 0.0}, timeout=None, retries=1, patience=2.0)
    yield hired
    hired.close()


def test_without_room_for_a_worker_it_is_told_and_then_given_up(nobody):
    said = []
    with nobody.telling(said.append):
        for wait in (lambda: nobody.teach(Doubling, [2], "number"), lambda: asked(nobody, [1])):
            with pytest.raises(EvomalError, match=r"^no worker of the Ray cluster was ready within 2 s$"):
                wait()
    assert said == ["0 of 2 workers: waiting until there is room for one, and it has begun"]
    assert nobody._hands == []


def test_a_stop_is_noticed_while_workers_are_waited_for(nobody, monkeypatch):
    monkeypatch.setattr(nobody, "_patience", 1000.0)
    ticks = []

    def tick():
        ticks.append(time.monotonic())
        if len(ticks) == 3:
            raise StoppedError

    for wait in (lambda: nobody.teach(Doubling, [2], "number"), lambda: asked(nobody, [1])):
        ticks.clear()
        with nobody.telling(None, tick), nobody.telling(None), pytest.raises(StoppedError):
            wait()
        assert ticks[2] - ticks[0] < 100


def test_a_defect_is_seen_and_ends_the_workers(cluster):
    with crew_of(SearchSettings(executor="ray", address=cluster.address, workers=1), []) as crew:
        crew.teach(Doubling, [2], "number")
        with pytest.raises(AttributeError, match="there is no such thing"):
            asked(crew, [1, "a defect"])
        assert crew._hands == []


@pytest.mark.parametrize(
    ("changes", "needs"), [({"threads": 5}, "5 processors"), ({"gpus_per_worker": 0.5}, "1 processor and 0.5 GPUs")]
)
def test_a_worker_that_fits_nowhere_is_one_sentence(cluster, changes, needs):
    settings = SearchSettings(executor="ray", address=cluster.address, **changes)
    with pytest.raises(InputError) as caught, crew_of(settings, []):
        pass
    assert str(caught.value) == f"a worker needs {needs}, but no node of the cluster has them"
