"""Server-sent events: every client that follows a run receives each new version of it."""

import asyncio
from collections.abc import AsyncIterator, Callable

from starlette.exceptions import HTTPException

MOST_FOLLOWERS = 500
_KEEP_ALIVE_SECONDS = 15.0
_KEEP_ALIVE = ": still here\n\n"  # a comment, which browsers ignore


class Events:
    """All followers; `version_of` gives the version of what they follow, None if that is gone.

    Only the latest version matters, so nothing is kept for a slow reader, and one wake-up serves all.
    """

    def __init__(self, version_of: Callable[[str], int | None]) -> None:
        self.followers = 0
        self._version_of = version_of
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._ticks = 0
        self._timer: asyncio.TimerHandle | None = None

    def open(self) -> None:
        """Start to send events, on the running loop."""
        self._loop = asyncio.get_running_loop()
        self._tick()

    def close(self) -> None:
        """End all streams."""
        self._loop = None
        if self._timer is not None:
            self._timer.cancel()
        self._wake()

    def notify(self) -> None:
        """Let every stream look for a new version; may be called by any thread."""
        if (loop := self._loop) is not None:
            loop.call_soon_threadsafe(self._wake)

    def stream(self, of: str) -> AsyncIterator[str]:
        """The events for one follower of that run or comparison.

        Raises:
            HTTPException: There is no such run or comparison, or there are too many followers.
        """
        if self._version_of(of) is None:
            raise HTTPException(404, "There is no such run or comparison.")
        if self.followers >= MOST_FOLLOWERS:
            raise HTTPException(503, f"The server has reached its limit of {MOST_FOLLOWERS} open pages.")
        return self._stream(of)

    async def _stream(self, of: str) -> AsyncIterator[str]:
        self.followers += 1
        try:
            yield "retry: 2000\n\n"
            sent, ticks = None, self._ticks
            while self._loop is not None:
                changed, version = self._changed, self._version_of(of)
                if version is None:
                    return
                if version != sent:
                    sent = version
                    yield f"data: {version}\n\n"
                elif ticks != self._ticks:
                    ticks = self._ticks
                    yield _KEEP_ALIVE
                else:
                    await changed.wait()
        finally:
            self.followers -= 1

    def _wake(self) -> None:
        event, self._changed = self._changed, asyncio.Event()
        event.set()

    def _tick(self) -> None:
        """Let every stream send a comment, so that a closed connection is noticed; one timer serves all."""
        assert self._loop is not None
        self._ticks += 1
        self._wake()
        self._timer = self._loop.call_later(_KEEP_ALIVE_SECONDS, self._tick)
