"""The connection to a cluster: which one it is, who shares it, and what is no cluster."""

import os
import socket
import threading
import time

import pytest

from evomal.errors import InputError
from evomal.runs.executors import cluster as module
from evomal.runs.executors import worker_pool
from evomal.settings import SearchSettings

ray = pytest.importorskip("ray")

LIMIT = "RAY_gcs_server_port_wait_time_s"


def test_an_address_where_nothing_listens_is_one_sentence_at_once():
    with pytest.raises(InputError) as caught, worker_pool(SearchSettings(executor="ray", address="127.0.0.1:1")):
        pass
    assert str(caught.value) == "no Ray cluster answers at 127.0.0.1:1: [Errno 111] Connection refused"


def test_an_address_in_brackets_is_understood():
    try:
        with socket.create_server(("::1", 0), family=socket.AF_INET6) as server:
            module._require_listener(f"[::1]:{server.getsockname()[1]}")
    except OSError:
        pytest.skip("this machine has no IPv6")


def test_where_something_else_listens_ray_tries_once_and_its_error_is_one_sentence(monkeypatch):
    def init(**options):
        tries.append(os.environ.get(LIMIT))
        raise ConnectionError("Failed to connect to Ray cluster")

    tries = []
    monkeypatch.delenv(LIMIT, raising=False)
    monkeypatch.setattr(ray, "init", init)
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with pytest.raises(InputError) as caught, worker_pool(SearchSettings(executor="ray", address=address)):
            pass
    assert str(caught.value) == f"no Ray cluster answers at {address}: Failed to connect to Ray cluster"
    assert tries == ["1"]
    assert LIMIT not in os.environ


@pytest.mark.long  # Ray's own time limits
def test_where_something_else_listens_it_is_one_sentence_within_a_minute():
    with socket.create_server(("", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        since = time.monotonic()
        with pytest.raises(InputError) as caught, worker_pool(SearchSettings(executor="ray", address=address)):
            pass
    assert time.monotonic() - since < 60
    assert str(caught.value).startswith(f"no Ray cluster answers at {address}: ")
    assert "\n" not in str(caught.value)


def test_a_search_in_another_thread_may_name_the_address_in_the_same_way(cluster):
    settings = SearchSettings(executor="ray", address=f"localhost:{cluster.address.rpartition(':')[2]}")
    with module._CONNECTION.used(settings), module._CONNECTION.used(settings) as connected:
        assert connected is ray


def test_searches_of_several_threads_share_a_connection_until_the_last_ends(cluster):
    settings = SearchSettings(executor="ray", address=cluster.address)
    first_is_out, found = threading.Event(), []

    def second(both_are_in):
        with module._CONNECTION.used(settings) as connected:
            both_are_in.set()
            assert first_is_out.wait(30)
            found.append(connected.get(connected.put(7)))

    both_are_in = threading.Event()
    other = threading.Thread(target=second, args=(both_are_in,))
    with module._CONNECTION.used(settings):
        other.start()
        assert both_are_in.wait(30)
    assert ray.is_initialized()
    first_is_out.set()
    other.join(30)
    assert found == [7]
    assert not ray.is_initialized()


def test_a_program_that_is_connected_elsewhere_is_told_so_and_stays_connected(cluster):
    with module._CONNECTION.used(SearchSettings(executor="ray", address=cluster.address)):
        for address in ("127.0.0.1:1", f"192.0.2.1:{cluster.address.rpartition(':')[2]}"):
            sentence = (
                f"address is {address}, but this program is connected to the Ray cluster at {cluster.address}: leave "
                "address out, or end that connection with ray.shutdown()"
            )
            with pytest.raises(InputError) as caught, worker_pool(SearchSettings(executor="ray", address=address)):
                pass
            assert str(caught.value) == sentence
        for address in (None, "auto", cluster.address):
            with module._CONNECTION.used(SearchSettings(executor="ray", address=address)) as connected:
                assert connected is ray
        assert ray.is_initialized()


def test_what_ray_asserts_is_one_sentence(monkeypatch):
    def init(**options):
        raise AssertionError

    monkeypatch.setattr(ray, "init", init)
    sentence = r"^no Ray cluster could be started here: AssertionError$"
    with pytest.raises(InputError, match=sentence), worker_pool(SearchSettings(executor="ray")):
        pass
