"""One cluster for all tests here, as starting one takes seconds."""

import pytest

from evomal.runs.executors import crew


@pytest.fixture(scope="session")
def cluster():
    """A cluster of two nodes on this machine."""
    pytest.importorskip("ray")
    from tests.runs.executors.clusters import two_nodes

    with two_nodes() as started:
        yield started


@pytest.fixture(scope="session", autouse=True)
def _patient():
    """However busy the machine is, work begins when all workers are there; tests of the opposite say so."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crew, "_GRACE", 500.0)
        yield
