"""`serve`: starts the server of the live page and runs it until it is interrupted."""

import contextlib
import os
import secrets
import socket
import sys
import webbrowser
from collections.abc import Callable, Sequence
from pathlib import Path

from evomal.checks import whole_number
from evomal.errors import InputError

_SHUTDOWN_SECONDS = 1
_NICENESS = 5  # where all cores are busy, a third of the time that others get: enough to stay usable


def serve(
    folder: Path,
    *,
    host: str = "127.0.0.1",
    port: int = 8123,
    names: Sequence[str] = (),
    trust: bool = False,
    open_browser: bool = False,
    say: Callable[[str], None] = lambda sentence: None,
) -> None:
    """Serve the live page until the process is interrupted.

    Args:
        folder: The folder whose runs and comparisons are shown, at any depth.
        host: The address to listen on; any but a loopback address lets other machines read the pages.
        port: The port; 0 takes any free one.
        names: Host names under which browsers may reach the page, besides localhost, this machine's name and IP
            addresses.
        trust: Whether the buttons may run Python files and join Ray clusters that records name.
        open_browser: Whether to open the page in a browser, with the token.
        say: Called with each sentence for the person who started the server; one of them has the token.

    Raises:
        InputError: `folder` is not a folder, the packages of the extra `server` are missing, or the port is in use.

    Example:
        >>> serve(Path("runs"), say=print)  # doctest: +SKIP
    """
    if not folder.is_dir():
        raise InputError(f"{folder}: is not a folder")
    whole_number("port", port, at_least=0, at_most=65535)
    try:
        import uvicorn

        from evomal.server.app import LivePages
    except ModuleNotFoundError as error:
        raise InputError(
            f"the live page needs the package {error.name}: install it with pip install 'evomal[server]'"
        ) from None
    import torch

    sys.setswitchinterval(0.001)  # so that answers do not wait long for pages that are being made
    torch.set_num_threads(1)  # drawing a loss is little work, and a search may need the cores
    token = secrets.token_urlsafe(12)
    with _listening_socket(host, port) as listener:
        own_names = (*names, host, socket.gethostname())
        pages = LivePages(folder, token=token, trust=trust, names=own_names)
        _lower_priority()
        address = f"http://{_host_in_address(host)}:{listener.getsockname()[1]}/"
        say(f"serving {folder} at {address}")
        say(f"the buttons need the token {token}; the address {address}#token={token} contains it")
        if not _is_loopback(host):
            say("everyone who can reach this address can read these runs; only the buttons need the token")
        if open_browser:
            webbrowser.open(f"{address}#token={token}")
        config = uvicorn.Config(
            pages.app, log_level="error", access_log=False, server_header=False, lifespan="on", ws="none",
            timeout_graceful_shutdown=_SHUTDOWN_SECONDS,
        )  # fmt: skip
        try:
            uvicorn.Server(config).run(sockets=[listener])
        except KeyboardInterrupt:
            say("stopped; searches are not affected")


def _lower_priority() -> None:
    """Let a search on the same machine go first.

    On Linux each thread has a priority, which threads that are started later inherit. The buttons start their processes
    from an older thread, so these keep the normal priority. On other systems they would inherit the lower one.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a supervisor may forbid it
            os.setpriority(os.PRIO_PROCESS, 0, max(_NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))


def _listening_socket(host: str, port: int) -> socket.socket:
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # asyncio disables Nagle's algorithm only if the protocol is given; otherwise every second answer waits 40 ms.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
    except (OSError, UnicodeError) as error:
        raise InputError(f"host must be an address of this machine but got {host!r}: {error}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
        listener.listen(128)
        listener.set_inheritable(False)
    except OSError as error:
        listener.close()
        raise InputError(f"port {port} of {host} cannot be used: {error.strerror}; choose another --port") from None
    return listener


def _host_in_address(host: str) -> str:
    if ":" in host:  # an IPv6 address
        return f"[{host}]"
    return socket.gethostname() if host in ("0.0.0.0", "") else host


def _is_loopback(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")
