"""One cluster for all tests here, as starting one takes seconds."""

import pytest


@pytest.fixture(scope="session")
def cluster():
    """A cluster of two nodes on this machine."""
    pytest.importorskip("ray")
    from tests.runs.executors.clusters import two_nodes

    with two_nodes() as started:
        yield started
