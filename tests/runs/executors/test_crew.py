"""Workers that are asked, lost, replaced, and let go."""

import os

import pytest

from evomal.errors import EvomalError, InputError
from evomal.methods import Failure
from evomal.runs.executors.cluster import crew_of
from evomal.runs.executors.crew import _reason
from evomal.settings import SearchSettings
from tests.runs.executors.clusters import Doubling, workers

ray = pytest.importorskip("ray")


@pytest.fixture(scope="module")
def crew(cluster):
    said = []
    settings = SearchSettings(executor="ray", address=cluster.address, workers=2, worker_timeout=2.0, retries=1)
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
    before = workers()
    assert crew.teach(Doubling, [3], "number") == {"factor": 3}
    assert asked(crew, [1, 2]) == [3, 6]
    assert workers() == before


def test_a_block_inside_another_has_the_same_workers(crew, cluster):
    settings = SearchSettings(executor="ray", address=cluster.address, workers=2, worker_timeout=2.0, retries=1)
    with crew_of(settings.with_changes(population=7), []) as inner:
        assert inner is crew


def test_who_kills_workers_is_given_up_and_the_others_are_done(crew):
    crew.teach(Doubling, [2], "number")
    crew.said.clear()
    assert asked(crew, [1, "dies", 3, 4, 5]) == [2, Failure("its worker died (2 times)"), 6, 8, 10]
    assert sum("was lost with" in sentence and "its worker died" in sentence for sentence in crew.said) == 2


def test_who_hangs_is_given_up_and_the_others_are_done(crew):
    crew.teach(Doubling, [2], "number")
    numbers = [1, 2, "hangs", 4, 5, 6]
    assert asked(crew, numbers) == [2, 4, Failure("it took longer than 2 s (2 times)"), 8, 10, 12]


def test_rows_that_must_stay_together_are_cut_only_to_find_who_is_to_blame(crew):
    crew.teach(Doubling, [2], "number")
    assert asked(crew, [1, "dies", 3], unit=3) == [2, Failure("its worker died (2 times)"), 6]


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


def test_a_defect_is_seen_and_ends_the_workers(cluster):
    with crew_of(SearchSettings(executor="ray", address=cluster.address, workers=1), []) as crew:
        crew.teach(Doubling, [2], "number")
        with pytest.raises(AttributeError, match="there is no such thing"):
            asked(crew, [1, "a defect"])
        assert crew._hands == []


@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (ray.exceptions.OutOfMemoryError("killed"), "its worker ran out of memory"),
        (ray.exceptions.NodeDiedError("gone"), "its worker's machine was lost"),
        (ray.exceptions.WorkerCrashedError(), "its worker died"),
        (ray.exceptions.ActorDiedError(), "its worker died"),
    ],
)
def test_what_ray_raises_is_told_in_a_few_words(error, reason):
    assert _reason(error) == reason


@pytest.mark.parametrize(
    ("changes", "needs"), [({"threads": 5}, "5 processors"), ({"gpus_per_worker": 0.5}, "1 processors and 0.5 GPUs")]
)
def test_a_worker_that_fits_nowhere_is_one_sentence(cluster, changes, needs):
    settings = SearchSettings(executor="ray", address=cluster.address, **changes)
    with pytest.raises(InputError) as caught, crew_of(settings, []):
        pass
    assert str(caught.value) == f"a worker needs {needs}, but no node of the cluster has them"
