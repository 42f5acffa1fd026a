"""One cluster for all tests here, as starting one takes seconds."""

import pytest

from evomal.runs.executors import ray_pool
from tests.runs.executors.clusters import rays_own_folder, two_nodes


@pytest.fixture(scope="session", autouse=True)
def rays_folder():
    """The folder of all files of Ray in these tests."""
    with rays_own_folder() as folder:
        yield folder


@pytest.fixture(scope="session")
def cluster(rays_folder):
    """A cluster of two nodes on this machine."""
    pytest.importorskip("ray")
    with two_nodes() as started:
        yield started


@pytest.fixture(scope="session", autouse=True)
def _on_a_busy_machine():
    """Settings with which the tests do not depend on the load of the machine."""
    with pytest.MonkeyPatch.context() as patch:
        # By default Ray gives its workers a lower priority than other processes, such as other tests.
        patch.setenv("RAY_worker_niceness", "0")
        patch.setattr(ray_pool, "_GRACE", 500.0)  # work begins when all workers are ready
        yield
