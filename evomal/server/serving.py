"""`serve`: the server from its first to its last moment."""

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

_SECONDS_TO_END = 1
_NICENESS = 5  # a third of the time of others where all cores are busy: enough to stay usable


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
        host: The address to listen at; anything but an address of this machine alone lets others read.
        port: The port; 0 takes any free one.
        names: Host names under which the page may be asked for, besides localhost, this machine's name and addresses
            in numbers.
        trust: Whether the buttons may run Python files and join Ray clusters that records name.
        open_browser: Whether to open the page in a browser, with the token.
        say: Called with each sentence for the person who started it, among them the token.

    Raises:
        InputError: The folder is not one, the packages of the extra `server` are missing, or the port is in use.

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

    sys.setswitchinterval(0.001)  # answers do not wait long for pages that are being made
    torch.set_num_threads(1)  # shapes are small, and a search may need the cores
    token = secrets.token_urlsafe(12)
    with _listening(host, port) as listener:
        own_names = (*names, host, socket.gethostname())
        pages = LivePages(folder, token=token, trust=trust, names=own_names)
        _give_way()
        address = f"http://{_shown(host)}:{listener.getsockname()[1]}/"
        say(f"serving {folder} at {address}")
        say(f"the buttons need the token {token}; {address}#token={token} brings it along")
        if not _is_own(host):
            say("everybody who can reach this address can read these runs; the token is needed for the buttons only")
        if open_browser:
            webbrowser.open(f"{address}#token={token}")
        config = uvicorn.Config(
            pages.app, log_level="error", access_log=False, server_header=False, lifespan="on", ws="none",
            timeout_graceful_shutdown=_SECONDS_TO_END,
        )  # fmt: skip
        try:
            uvicorn.Server(config).run(sockets=[listener])
        except KeyboardInterrupt:
            say("stopped; searches are not affected")


def _give_way() -> None:
    """Let a search on the same machine go first.

    On Linux, priority is that of a thread, and threads begun later have it; so the processes that the buttons begin,
    from a thread that is older, have the usual one. Elsewhere they could not get it back.
    """
    if sys.platform == "linux":
        with contextlib.suppress(OSError):  # a supervisor may forbid it
            os.setpriority(os.PRIO_PROCESS, 0, max(_NICENESS, os.getpriority(os.PRIO_PROCESS, 0)))


def _listening(host: str, port: int) -> socket.socket:
    try:
        family, *_, place = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0]
        # With the protocol, asyncio sends at once; without, every second answer of a connection waits for 40 ms.
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


def _shown(host: str) -> str:
    return f"[{host}]" if ":" in host else socket.gethostname() if host in ("0.0.0.0", "") else host


def _is_own(host: str) -> bool:
    return host in ("localhost", "::1") or host.startswith("127.")
