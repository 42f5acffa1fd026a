"""Pages that are made once per change for all requests, and kept as the bytes that are sent."""

import asyncio
import gzip
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from starlette.requests import Request
from starlette.responses import Response

STALE_HEADER = "x-evomal-stale"
"""Set on a page that is out of date: the client should ask again in a while."""
_SHARE_OF_PAGES = 0.1  # of a core, for each page that is made again and again
_MOST_PAGES = 128  # kept in memory
_MOST_THREADS = 2  # that make pages, so that a search on the same machine keeps its cores
_GZIP_LEVEL = 4  # half the time of the usual level, for a few percent more bytes

Name = tuple[object, ...]
Version = tuple[object, ...]


@dataclass(frozen=True)
class Content:
    """The body of an answer, plain and compressed, so that it is compressed only once."""

    plain: bytes
    compressed: bytes
    kind: str

    @classmethod
    def of(cls, plain: bytes, kind: str) -> "Content":
        """The content in both forms."""
        return cls(plain, gzip.compress(plain, _GZIP_LEVEL, mtime=0), kind)

    def answer(self, request: Request, tag: str, **headers: str) -> Response:
        """The answer to a request; without the body if the client has it already."""
        accepted = request.headers.get("accept-encoding", "").replace(" ", "")
        is_compressed = "gzip" in accepted and "gzip;q=0" not in accepted
        tag = f'"{tag}{"-gzip" * is_compressed}"'
        found = {"cache-control": "no-cache", "etag": tag, "vary": "accept-encoding", **headers}
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=found)
        if is_compressed:
            found["content-encoding"] = "gzip"
        return Response(self.compressed if is_compressed else self.plain, media_type=self.kind, headers=found)


class KeptPages:
    """The pages that were asked for lately."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="evomal-pages")
        self._pages: OrderedDict[Name, _KeptPage] = OrderedDict()
        # Versions are counted anew by every server, so its tags must differ from those of the one before.
        self._boot = secrets.token_hex(4)

    async def answer(self, request: Request, name: Name, version: Version, make: Callable[[], str]) -> Response:
        """The page of that name, made once for all requests; pages of a fast search are not made for every version."""
        kept = self._pages.get(name)
        if kept is None or (kept.version != version and kept.may_be_remade()):
            kept = _KeptPage(version, make, self._threads)
            self._pages[name] = kept
            while len(self._pages) > _MOST_PAGES:
                self._pages.popitem(last=False)
        self._pages.move_to_end(name)
        try:
            content = await asyncio.shield(kept.content)
        except BaseException:
            if kept.content.done() and self._pages.get(name) is kept:
                del self._pages[name]
            raise
        stale = {STALE_HEADER: "1"} if kept.version != version else {}
        return content.answer(request, self.tag(*kept.version), **stale)

    def tag(self, *version: object) -> str:
        """The tag of a version, which no other server has given to anything."""
        return "-".join(map(str, (self._boot, *version)))

    async def run(self, function: Callable[..., bytes], *arguments: object) -> bytes:
        """Call a function in one of the threads that make pages, and return its result."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, function, *arguments)

    def warm_up(self, make: Callable[[], None]) -> None:
        """Call a function in a thread, ahead of the first page that would wait for it."""
        self._threads.submit(make)

    def close(self) -> None:
        """End the threads."""
        self._threads.shutdown(cancel_futures=True)


class _KeptPage:
    """A page that was made, or is being made, by a thread."""

    def __init__(self, version: Version, make: Callable[[], str], threads: ThreadPoolExecutor) -> None:
        self.version = version
        self.content = asyncio.get_running_loop().run_in_executor(threads, self._timed, make)
        self._not_before = math.inf

    def may_be_remade(self) -> bool:
        """Whether enough time has passed: pages of fast searches must not take more than a small share of a core."""
        return self.content.done() and time.monotonic() >= self._not_before

    def _timed(self, make: Callable[[], str]) -> Content:
        begin = time.thread_time()
        try:
            return Content.of(make().encode(), "text/html; charset=utf-8")
        finally:
            self._not_before = time.monotonic() + (time.thread_time() - begin) / _SHARE_OF_PAGES
