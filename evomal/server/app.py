"""The web application: addresses, pages that are made once per change, and events for those who follow."""

import asyncio
import math
import secrets
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import (
    HTMLResponse,
    JSONResponse,
    PlainTextResponse,
    RedirectResponse,
    Response,
    StreamingResponse,
)
from starlette.routing import Route

from evomal.errors import EvomalError, InputError
from evomal.report.pages import render
from evomal.server.actions import Actions
from evomal.server.candidate_pages import EXPORTS, candidate_page, candidates_page, exported
from evomal.server.comparison_page import comparison_page
from evomal.server.guard import TOKEN_HEADER, Guard, is_same_token
from evomal.server.library import FollowedFolder, Library, key_of
from evomal.server.list_page import comparison_summary, list_page
from evomal.server.pair_page import pair_page
from evomal.server.run_page import comparison_folder, run_page, warm_up
from evomal.text import file_name
from evomal.verdict.searches import SEARCHES

EVERYTHING = "*"
STALE_HEADER = "x-evomal-stale"
"""On a page that is older than what is known: it is worth asking again in a while."""
_SHARE_OF_PAGES = 0.1  # of a core, for each page that is made again and again
_COMPARISON = "comparison:"
_STATIC = Path(__file__).with_name("static")
_MOST_PAGES = 128  # kept in memory
_MOST_FOLLOWERS = 500
_SECONDS_BETWEEN_SIGNS = 15.0
_SECONDS_TO_BEGIN = 60.0  # until a process that a button began holds its folder
_LARGEST_PLACE = 2**31 - 1
_LARGEST_BODY = 10_000  # bytes
_MOST_THREADS = 2  # that make pages, so that a search on the same machine keeps its cores
_KINDS = {".js": "text/javascript", ".svg": "image/svg+xml"}

Version = tuple[object, ...]


class LivePages:
    """The application and what its requests share."""

    def __init__(self, folder: Path, *, token: str, trust: bool = False, names: tuple[str, ...] = ()) -> None:
        self.library = Library(folder, self._on_change)
        self._token, self._actions = token, Actions(trust=trust)
        self._boot = secrets.token_hex(4)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._changed = asyncio.Event()
        self._followers = 0
        self._pages: OrderedDict[str, _KeptPage] = OrderedDict()
        self._threads = ThreadPoolExecutor(_MOST_THREADS, thread_name_prefix="evomal-pages")
        self._static = _static_files()
        routes = [
            Route("/", self.show_list),
            Route("/runs/{key}", self.show_run),
            Route("/runs/{key}/candidates", self.show_candidates),
            Route("/runs/{key}/candidates/{generation:int}/{index:int}", self.show_candidate),
            Route("/runs/{key}/candidates/{generation:int}/{index:int}/{form}", self.export),
            Route("/runs/{key}/{action:str}", self.act, methods=["POST"]),
            Route("/comparisons/{key}", self.show_comparison),
            Route("/pair", self.show_pair),
            Route("/events", self.follow),
            Route("/static/{name}", self.show_file),
        ]
        self.app = Starlette(
            routes=routes,
            middleware=[Middleware(Guard, names=names)],
            lifespan=self._lifespan,
            exception_handlers={HTTPException: _refused, EvomalError: _failed},
        )

    @asynccontextmanager
    async def _lifespan(self, app: Starlette) -> AsyncIterator[None]:
        self._loop = asyncio.get_running_loop()
        self.library.start()
        self._threads.submit(warm_up)
        try:
            yield
        finally:
            self._loop = None
            self._changed.set()
            await asyncio.to_thread(self.library.stop)
            self._threads.shutdown(cancel_futures=True)

    def _on_change(self) -> None:
        """Called by the thread that watches."""
        self._actions.reap()
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._wake)

    def _wake(self) -> None:
        event, self._changed = self._changed, asyncio.Event()
        event.set()

    async def show_list(self, request: Request) -> Response:
        """The list of all runs and comparisons."""
        number, text = _page_number(request), request.query_params.get("text", "")

        def made() -> str:
            library = self.library
            runs = [folder.summary for folder in library.runs.values()]
            comparisons = [
                comparison_summary(one.view, key, library.name_of(one.folder))
                for key, one in library.comparisons.items()
                if one.view is not None
            ]
            return list_page(str(library.top), runs, comparisons, number=number, text=text)

        return await self._page(request, f"list {number} {text}", (self.library.version,), made)

    async def show_run(self, request: Request) -> Response:
        """The page of a run."""
        folder = self._run(request)
        place = comparison_folder(folder.view.head)
        key = None if place is None else key_of(place, self.library.top)
        comparison = f"/comparisons/{key}" if key in self.library.comparisons else None
        return await self._page(
            request, f"run {folder.key}", (folder.version,),
            lambda: run_page(folder.view, folder.summary, comparison=comparison),
        )  # fmt: skip

    async def show_comparison(self, request: Request) -> Response:
        """The page of a comparison."""
        key, library = request.path_params["key"], self.library
        found = library.comparisons.get(key)
        if found is None or found.view is None:
            raise HTTPException(404, "There is no such comparison, or no longer.")
        view, place = found.view, found.folder / SEARCHES
        searches = [run for run in library.runs.values() if run.folder.is_relative_to(place)]
        summary = comparison_summary(view, key, library.name_of(found.folder))
        return await self._page(
            request, f"comparison {key}", (view.version, *(run.version for run in searches)),
            lambda: comparison_page(view, summary, [run.summary for run in searches]),
        )  # fmt: skip

    async def show_pair(self, request: Request) -> Response:
        """Two runs side by side."""
        keys = request.query_params.getlist("run")
        folders = [self.library.runs[key] for key in dict.fromkeys(keys) if key in self.library.runs]
        if len(folders) != 2:
            raise HTTPException(400, f"Two runs must be chosen but got {len(folders)}.")
        return await self._page(
            request, f"pair {keys[0]} {keys[1]}", tuple(folder.version for folder in folders),
            lambda: pair_page([folder.view for folder in folders], [folder.summary for folder in folders]),
        )  # fmt: skip

    async def show_candidates(self, request: Request) -> Response:
        """All candidates of a run, in pages."""
        folder, number = self._run(request), _page_number(request)
        order = "newest" if request.query_params.get("sort") == "newest" else "best"
        return await self._page(
            request, f"candidates {folder.key} {order} {number}", (folder.version,),
            lambda: candidates_page(folder.view, folder.summary, order=order, number=number),
        )  # fmt: skip

    async def show_candidate(self, request: Request) -> Response:
        """The page of one candidate."""
        folder, place = self._run(request), self._place(request)
        return await self._page(
            request, f"candidate {folder.key} {place}", (folder.version,),
            lambda: candidate_page(folder.view, folder.summary, place),
        )  # fmt: skip

    async def export(self, request: Request) -> Response:
        """A candidate's loss as a file."""
        folder, place, form = self._run(request), self._place(request), request.path_params["form"]
        if form not in EXPORTS:
            raise HTTPException(404, "There is no such format.")
        run = asyncio.get_running_loop().run_in_executor
        content = await run(self._threads, exported, folder.view, place, form)
        name = file_name(f"{folder.name}-{place[0] + 1}-{place[1]}{EXPORTS[form][0]}")
        headers = {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-cache"}
        return Response(content, media_type=EXPORTS[form][1], headers=headers)

    def _place(self, request: Request) -> tuple[int, int]:
        place = (request.path_params["generation"], request.path_params["index"])
        if max(place) > _LARGEST_PLACE or self._run(request).view.rowid_of(*place) is None:
            raise HTTPException(404, "There is no such candidate.")
        return place

    async def act(self, request: Request) -> Response:
        """What a button asks for; only with the token."""
        folder, action = self._run(request), request.path_params["action"]
        known = {"stop": self._actions.stop, "resume": self._actions.resume, "compare": self._actions.compare}
        if action not in known:
            raise HTTPException(404, "There is no such action.")
        body = await _body(request)
        header = request.headers.get(TOKEN_HEADER)
        given = header if header is not None else parse_qs(body).get("token", [""])[0]
        if not is_same_token(given, self._token):
            raise HTTPException(403, "The token is not the one that the server printed when it was started.")
        sentence = await asyncio.to_thread(known[action], folder.view)
        folder.expected_until = time.monotonic() + _SECONDS_TO_BEGIN
        if header is not None:
            return JSONResponse({"sentence": sentence})
        return RedirectResponse(f"/runs/{folder.key}", 303)

    async def follow(self, request: Request) -> Response:
        """Events: the version of a run, or of everything, whenever it changes."""
        of = request.query_params.get("of", EVERYTHING)
        if self._version_of(of) is None:
            raise HTTPException(404, "There is nothing of that name.")
        if self._followers >= _MOST_FOLLOWERS:
            raise HTTPException(503, f"The server has its limit of {_MOST_FOLLOWERS} followers.")
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        return StreamingResponse(self._events(of), media_type="text/event-stream", headers=headers)

    async def _events(self, of: str) -> AsyncIterator[str]:
        # Only the latest version matters, so nothing has to be kept for a slow reader.
        self._followers += 1
        try:
            yield "retry: 2000\n\n"
            told: object = None
            while self._loop is not None:
                changed, version = self._changed, self._version_of(of)
                if version is None:
                    return
                if version != told:
                    yield f"id: {self._boot}-{version}\ndata: {version}\n\n"
                    told = version
                try:
                    await asyncio.wait_for(changed.wait(), _SECONDS_BETWEEN_SIGNS)
                except TimeoutError:
                    yield ": still here\n\n"
        finally:
            self._followers -= 1

    async def show_file(self, request: Request) -> Response:
        """The style sheet, the script and the icon."""
        found = self._static.get(request.path_params["name"])
        if found is None:
            raise HTTPException(404, "There is no such file.")
        content, kind = found
        return Response(content, media_type=kind, headers={"cache-control": "no-cache"})

    def _version_of(self, of: str) -> int | None:
        if of == EVERYTHING:
            return self.library.version
        if of.startswith(_COMPARISON):
            comparison = self.library.comparisons.get(of.removeprefix(_COMPARISON))
            return None if comparison is None or comparison.view is None else comparison.view.version
        folder = self.library.runs.get(of)
        return None if folder is None else folder.version

    def _run(self, request: Request) -> FollowedFolder:
        folder = self.library.runs.get(request.path_params["key"])
        if folder is None:
            raise HTTPException(404, "There is no such run, or no longer.")
        return folder

    async def _page(self, request: Request, name: str, version: Version, made: Callable[[], str]) -> Response:
        """The page of that name, which is made once for all who ask, and not for every version of a fast search."""
        kept = self._pages.get(name)
        if kept is None or (kept.version != version and kept.may_be_made_anew()):
            kept = _KeptPage(version, made, self._threads)
            self._pages[name] = kept
            while len(self._pages) > _MOST_PAGES:
                self._pages.popitem(last=False)
        self._pages.move_to_end(name)
        tag = f'"{self._boot}-{"-".join(map(str, kept.version))}"'
        headers = {"cache-control": "no-cache", "etag": tag}
        if kept.version != version:
            headers[STALE_HEADER] = "1"
        try:
            content = await asyncio.shield(kept.content)
        except BaseException:
            if kept.content.done() and self._pages.get(name) is kept:
                del self._pages[name]
            raise
        if request.headers.get("if-none-match") == tag:
            return Response(status_code=304, headers=headers)
        return HTMLResponse(content, headers=headers)


class _KeptPage:
    """A page that was made, or is being made, by a thread."""

    def __init__(self, version: Version, made: Callable[[], str], threads: ThreadPoolExecutor) -> None:
        self.version = version
        self.content = asyncio.get_running_loop().run_in_executor(threads, self._timed, made)
        self._not_before = math.inf

    def may_be_made_anew(self) -> bool:
        """Whether enough time has passed: pages of fast searches must not take more than a small share of a core."""
        return self.content.done() and time.monotonic() >= self._not_before

    def _timed(self, made: Callable[[], str]) -> bytes:
        begin = time.thread_time()
        try:
            return made().encode()
        finally:
            self._not_before = time.monotonic() + (time.thread_time() - begin) / _SHARE_OF_PAGES


def _static_files() -> dict[str, tuple[bytes, str]]:
    """The files that pages need, by name, with their kinds."""
    found = {path.name: (path.read_bytes(), _KINDS[path.suffix]) for path in _STATIC.iterdir() if path.suffix in _KINDS}
    return found | {"style.css": (render("live_style.css").encode(), "text/css")}


def _page_number(request: Request) -> int:
    text = request.query_params.get("page", "1")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else 1


async def _body(request: Request) -> str:
    content = b""
    async for part in request.stream():
        content += part
        if len(content) > _LARGEST_BODY:
            raise HTTPException(413, "The request is too large.")
    return content.decode("utf-8", "replace")


def _answer(request: Request, sentence: str, status: int) -> Response:
    if request.headers.get(TOKEN_HEADER) is not None:
        return JSONResponse({"sentence": sentence}, status)
    if request.method == "HEAD":
        return PlainTextResponse("", status)
    return HTMLResponse(render("live_refusal.html", sentence=sentence), status)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    return _answer(request, error.detail, error.status_code)


async def _failed(request: Request, error: Exception) -> Response:
    sentence = str(error)
    return _answer(request, f"{sentence[:1].upper()}{sentence[1:]}.", 409 if isinstance(error, InputError) else 500)
