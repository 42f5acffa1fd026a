"""The connection to a cluster: which one it is, who shares it, who is no cluster at all."""

import socket
import threading

import pytest

from evomal.errors import InputError
from evomal.runs.executors import cluster as module
from evomal.runs.executors.cluster import crew_of
from evomal.settings import SearchSettings

ray = pytest.importorskip("ray")


@pytest.fixture
def listener():
    """A port where somebody listens, and what is answered to whoever comes."""
    servers = []

    def listen(family, host, answer):
        server = socket.socket(family)
        server.bind((host, 0))
        server.listen()
        servers.append(server)

        def serve():
            connection, _ = server.accept()
            with connection:
                connection.recv(100)
                if answer is None:
                    threading.Event().wait(3)
                else:
                    connection.sendall(answer)

        threading.Thread(target=serve, daemon=True).start()
        return server.getsockname()[1]

    yield listen
    for server in servers:
        server.close()


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"HTTP/1.1 400 Bad Request\r\n\r\n", "what listens there is something else"),
        (b"", "what listens there is something else"),
        (None, "nothing came within 0.5 s"),
    ],
)
def test_a_port_where_something_else_listens_is_one_sentence_at_once(listener, monkeypatch, answer, reason):
    monkeypatch.setattr(module, "_CONNECTING", 0.5)
    address = f"127.0.0.1:{listener(socket.AF_INET, '127.0.0.1', answer)}"
    with pytest.raises(InputError) as caught, crew_of(SearchSettings(executor="ray", address=address), []):
        pass
    assert str(caught.value) == f"no Ray cluster answers at {address}: {reason}"


def test_an_address_in_brackets_is_understood(listener):
    try:
        port = listener(socket.AF_INET6, "::1", b"hello, who is there?")
    except OSError:
        pytest.skip("this machine has no IPv6")
    with pytest.raises(InputError, match="what listens there is something else"):
        module._require_listener(f"[::1]:{port}")


def test_a_cluster_that_listens_is_taken_for_one(cluster):
    module._require_listener(cluster.address)


def test_searches_of_several_threads_share_a_connection_until_the_last_ends(cluster):
    settings = SearchSettings(executor="ray", address=cluster.address)
    first_is_out, found = threading.Event(), []

    def second(both_are_in):
        with module._connected(settings, []) as connected:
            both_are_in.set()
            assert first_is_out.wait(30)
            found.append(connected.get(connected.put(7)))

    both_are_in = threading.Event()
    other = threading.Thread(target=second, args=(both_are_in,))
    with module._connected(settings, []):
        other.start()
        assert both_are_in.wait(30)
    assert ray.is_initialized()
    first_is_out.set()
    other.join(30)
    assert found == [7]
    assert not ray.is_initialized()


def test_a_program_that_is_connected_elsewhere_is_told_so_and_stays_connected(cluster):
    with module._connected(SearchSettings(executor="ray", address=cluster.address), []):
        for address in ("127.0.0.1:1", f"192.0.2.1:{cluster.address.rpartition(':')[2]}"):
            sentence = (
                f"address is {address}, but this program is connected to the Ray cluster at {cluster.address}: leave "
                "address out, or end that connection with ray.shutdown()"
            )
            with pytest.raises(InputError) as caught, crew_of(SearchSettings(executor="ray", address=address), []):
                pass
            assert str(caught.value) == sentence
        local = f"localhost:{cluster.address.rpartition(':')[2]}"
        for address in (None, "auto", local):
            with module._connected(SearchSettings(executor="ray", address=address), []) as connected:
                assert connected is ray
        assert ray.is_initialized()


def test_what_ray_asserts_is_one_sentence(monkeypatch):
    def init(**options):
        raise AssertionError

    monkeypatch.setattr(ray, "init", init)
    with pytest.raises(InputError, match=r"^no Ray cluster could be started here: AssertionError$"):
        module._CONNECTION.join(SearchSettings(executor="ray"), [])
