"""The web application: which page is at which address, and the requests of the buttons."""

import asyncio
import time
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from pathlib import Path
from urllib.parse import parse_qs

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
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
from evomal.server.events import Events
from evomal.server.guard import TOKEN_HEADER, Guard, is_same_token
from evomal.server.kept_pages import Content, KeptPages
from evomal.server.library import FollowedFolder, Library, comparison_of, key_of
from evomal.server.list_page import LONGEST_FILTER, comparison_page, comparison_summary, list_page
from evomal.server.run_page import pair_page, run_page, warm_up
from evomal.text import as_sentence, file_name

EVERYTHING = "*"
_COMPARISON = "comparison:"
_STATIC = Path(__file__).with_name("static")
_SECONDS_TO_START = 60.0  # until a process that a button started holds its folder
_MOST_DIGITS = 9  # of a number in an address
_LARGEST_BODY = 10_000  # bytes
_KINDS = {".js": "text/javascript", ".svg": "image/svg+xml", ".css": "text/css"}


class LivePages:
    """The application and what its requests share."""

    def __init__(self, folder: Path, *, token: str, trust: bool = False, names: tuple[str, ...] = ()) -> None:
        self.library = Library(folder, self._on_change)
        self._token, self._actions = token, Actions(trust=trust)
        # Its thread is started now, with normal priority, which its processes inherit: `serve` lowers its own later.
        self._action_thread = ThreadPoolExecutor(1, thread_name_prefix="evomal-actions")
        self._action_thread.submit(self._actions.reap).result()
        self._pages, self._events = KeptPages(), Events(self._version_of)
        self._static = _static_files()
        routes = [
            Route("/", self.show_list),
            Route("/runs/{key}", self.show_run),
            Route("/runs/{key}/candidates", self.show_candidates),
            Route("/runs/{key}/candidates/{generation}/{index}", self.show_candidate),
            Route("/runs/{key}/candidates/{generation}/{index}/{form}", self.export),
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
        self._events.open()
        self.library.start()
        self._pages.warm_up(warm_up)
        try:
            yield
        finally:
            self._events.close()
            await asyncio.to_thread(self.library.stop)
            self._pages.close()
            self._action_thread.shutdown()

    def _on_change(self) -> None:
        """Called by the thread that watches."""
        self._action_thread.submit(self._actions.reap)
        self._events.notify()

    async def show_list(self, request: Request) -> Response:
        """The list of all runs and comparisons."""
        number, text = _page_number(request), request.query_params.get("text", "")[:LONGEST_FILTER]

        def make() -> str:
            library = self.library
            runs = [folder.summary for folder in library.runs.values()]
            comparisons = [
                comparison_summary(one.view, key, library.name_of(one.folder))
                for key, one in library.comparisons.items()
                if one.view is not None
            ]
            return list_page(str(library.top), runs, comparisons, number=number, text=text)

        return await self._pages.answer(request, ("list", number, text), (self.library.version,), make)

    async def show_run(self, request: Request) -> Response:
        """The page of a run."""
        folder = self._run(request)
        place = comparison_of(folder.folder)
        key = None if place is None else key_of(place, self.library.top)
        comparison = f"/comparisons/{key}" if key in self.library.comparisons else None
        return await self._pages.answer(
            request, ("run", folder.first_version), (folder.version, comparison is not None),
            lambda: run_page(folder.view, folder.summary, comparison=comparison),
        )  # fmt: skip

    async def show_comparison(self, request: Request) -> Response:
        """The page of a comparison."""
        key, library = request.path_params["key"], self.library
        found = library.comparisons.get(key)
        if found is None or found.view is None:
            raise HTTPException(404, "There is no such comparison, or it was removed.")
        view, searches = found.view, library.searches.get(key, [])
        latest = max((run.version for run in searches), default=0)
        summary = comparison_summary(view, key, library.name_of(found.folder))
        return await self._pages.answer(
            request, ("comparison", key), (view.version, len(searches), latest),
            lambda: comparison_page(view, summary, [run.summary for run in searches]),
        )  # fmt: skip

    async def show_pair(self, request: Request) -> Response:
        """Two runs side by side."""
        keys = request.query_params.getlist("run")
        folders = [self.library.runs[key] for key in dict.fromkeys(keys) if key in self.library.runs]
        if len(folders) != 2:
            raise HTTPException(400, f"Two runs must be chosen but got {len(folders)}.")
        name = ("pair", *(folder.first_version for folder in folders))
        return await self._pages.answer(
            request, name, tuple(folder.version for folder in folders),
            lambda: pair_page([folder.view for folder in folders], [folder.summary for folder in folders]),
        )  # fmt: skip

    async def show_candidates(self, request: Request) -> Response:
        """All candidates of a run, in pages."""
        folder, number = self._run(request), _page_number(request)
        order = "newest" if request.query_params.get("sort") == "newest" else "best"
        return await self._pages.answer(
            request, ("candidates", folder.first_version, order, number), (folder.version,),
            lambda: candidates_page(folder.view, folder.summary, order=order, number=number),
        )  # fmt: skip

    async def show_candidate(self, request: Request) -> Response:
        """The page of one candidate."""
        folder, place = self._run(request), self._place(request)
        return await self._pages.answer(
            request, ("candidate", folder.first_version, *place), (folder.version,),
            lambda: candidate_page(folder.view, folder.summary, place),
        )  # fmt: skip

    async def export(self, request: Request) -> Response:
        """A candidate's loss as a file."""
        folder, place, form = self._run(request), self._place(request), request.path_params["form"]
        if form not in EXPORTS:
            raise HTTPException(404, "There is no such format.")
        content = await self._pages.run(exported, folder.view, place, form)
        name = file_name(f"{folder.name}-{place[0] + 1}-{place[1]}{EXPORTS[form][0]}")
        headers = {"content-disposition": f'attachment; filename="{name}"', "cache-control": "no-cache"}
        return Response(content, media_type=EXPORTS[form][1], headers=headers)

    def _place(self, request: Request) -> tuple[int, int]:
        generation, index = (_number(request.path_params[name]) for name in ("generation", "index"))
        if generation is None or index is None or self._run(request).view.rowid_of(generation, index) is None:
            raise HTTPException(404, "There is no such candidate.")
        return generation, index

    async def act(self, request: Request) -> Response:
        """Do what a button asks for, if the request has the token."""
        folder, action = self._run(request), request.path_params["action"]
        known = {"stop": self._actions.stop, "resume": self._actions.resume, "compare": self._actions.compare}
        if action not in known:
            raise HTTPException(404, "There is no such action.")
        body = await _body(request)
        header = request.headers.get(TOKEN_HEADER)
        given = header if header is not None else parse_qs(body).get("token", [""])[0]
        if not is_same_token(given, self._token):
            raise HTTPException(403, "The token is not the one that the server printed when it was started.")
        sentence = await asyncio.get_running_loop().run_in_executor(self._action_thread, known[action], folder.view)
        folder.expected_until = time.monotonic() + _SECONDS_TO_START
        if header is not None:
            return JSONResponse({"sentence": sentence})
        return RedirectResponse(f"/runs/{folder.key}", 303)

    async def follow(self, request: Request) -> Response:
        """Events: the version of a run, or of everything, whenever it changes."""
        events = self._events.stream(request.query_params.get("of", EVERYTHING))
        headers = {"cache-control": "no-store", "x-accel-buffering": "no"}
        if request.method == "HEAD":
            return Response(media_type="text/event-stream", headers=headers)
        return StreamingResponse(events, media_type="text/event-stream", headers=headers)

    async def show_file(self, request: Request) -> Response:
        """The style sheet, the script and the icon."""
        found = self._static.get(request.path_params["name"])
        if found is None:
            raise HTTPException(404, "There is no such file.")
        return found.answer(request, self._pages.tag())

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
            raise HTTPException(404, "There is no such run, or it was removed.")
        return folder


def _static_files() -> dict[str, Content]:
    """The files that pages need, by name."""
    found = {path.name: path.read_bytes() for path in _STATIC.iterdir() if path.suffix in _KINDS}
    found["style.css"] = render("live_style.css").encode()
    return {name: Content.of(content, _KINDS[Path(name).suffix]) for name, content in found.items()}


def _number(text: str) -> int | None:
    """A whole number in an address; None for anything else, and for more digits than any place has."""
    return int(text) if text.isascii() and text.isdigit() and len(text) <= _MOST_DIGITS else None


def _page_number(request: Request) -> int:
    found = _number(request.query_params.get("page", "1"))
    return 1 if found is None else found


async def _body(request: Request) -> str:
    content = b""
    try:
        async for part in request.stream():
            content += part
            if len(content) > _LARGEST_BODY:
                raise HTTPException(413, "The request is too large.")
    except ClientDisconnect:
        raise HTTPException(400, "The request is incomplete.") from None
    return content.decode("utf-8", "replace")


def _answer(request: Request, sentence: str, status: int) -> Response:
    if request.headers.get(TOKEN_HEADER) is not None:
        return JSONResponse({"sentence": sentence}, status)
    if request.method == "HEAD":
        return PlainTextResponse("", status)
    return HTMLResponse(render("live_refusal.html", sentence=sentence), status)


async def _refused(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    answer = _answer(request, error.detail, error.status_code)
    answer.headers.update(error.headers or {})
    return answer


async def _failed(request: Request, error: Exception) -> Response:
    return _answer(request, as_sentence(str(error)), 409 if isinstance(error, InputError) else 500)
