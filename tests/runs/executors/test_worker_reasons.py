"""What becomes of Ray's errors in a record."""

import pytest

from evomal.runs.executors.worker import reason_of

ray = pytest.importorskip("ray")


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
    assert reason_of(error) == reason
