"""What evomal must never do, whatever it is given: the one judge of every case.

A command ends with exit code 0 and a result, or with 1 or 2 and one sentence (where a user's task raises what Ctrl-C
does, with 130); a function returns or raises an EvomalError of one line. Nothing else may leave them: no other
exception, no work beyond LIMIT seconds, no write outside of the working folder, no code that a file brought, no control
character, no markup that a stranger's text became.
"""

import contextlib
import dataclasses
import faulthandler
import importlib.util
import io
import itertools
import json
import os
import re
import signal
import subprocess
import sys
import tempfile
import traceback
import unicodedata
import warnings
import webbrowser
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import typer
from markdown_it import MarkdownIt

from evomal.cli import main
from evomal.errors import EvomalError
from tests.fuzzing import task_files
from tests.fuzzing.values import FORGED_ELEMENT, FORGED_LINE, FORGED_LINK, WAS_RUN

LIMIT = 30.0
"""Seconds that a call may take; a fifth of it on an idle computer would be long."""
LONGEST_SENTENCE = 4_000
_WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND
_CHANGES = {
    "os.remove",
    "os.rename",
    "os.rmdir",
    "os.mkdir",
    "os.link",
    "os.symlink",
    "os.truncate",
    "os.chmod",
    "os.utime",
}
_STARTS = {"subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn"}
_STARTERS = ("/joblib/externals/loky/", "/evomal/campaigns/cells.py")
"""Who may: the pool of `--jobs` starts processes of this program and reads what they answer, and campaigns ask git for
the commit of this program."""
_PICKLED_BY_NUMBA = {"numba", "numpy", "llvmlite", "builtins", "collections", "copyreg", "evomal"}  # in its own cache
_WARNING = re.compile(r"^\S*:\d+: \w*Warning: ", re.MULTILINE)


@dataclasses.dataclass(frozen=True)
class Box:
    """The folders of a case: `here` is the working folder, and what is in `outside` must stay as it is."""

    top: Path

    @property
    def work(self) -> Path:
        """Everything that may be written."""
        return self.top / "work"

    @property
    def here(self) -> Path:
        """The working folder."""
        return self.work / "a" / "b" / "here"  # so deep that the paths of a command lead up but not out

    @property
    def outside(self) -> Path:
        """Where links lead to."""
        return self.top / "outside"

    def build(self) -> "Box":
        """Create the folders."""
        (self.here).mkdir(parents=True)
        self.outside.mkdir()
        (self.outside / "victim.txt").write_text("untouched\n")
        os.mkfifo(self.outside / "fifo")
        return self

    def harm(self) -> str:
        """What was done to the files outside, or nothing."""
        found = sorted(path.name for path in self.outside.iterdir())
        if found != ["fifo", "victim.txt"]:
            return f"the folder outside holds {found}"
        if (self.outside / "victim.txt").read_text() != "untouched\n":
            return "a file outside was written"
        if left := set(os.listdir(self.top)) - {"work", "outside"}:
            return f"{sorted(left)} beside the working folder"
        return ""


@dataclasses.dataclass(frozen=True)
class Command:
    """A command line."""

    words: tuple[str, ...]
    encoding: str = "utf-8"
    """Of the terminal."""
    is_process: bool = False
    """Run in a process of its own."""

    def __str__(self) -> str:
        return f"evomal {' '.join(map(_short, self.words))}" + f"  ({self.encoding})" * (self.encoding != "utf-8")


@dataclasses.dataclass(frozen=True)
class Function:
    """A call of a function, which makes its arguments itself."""

    call: Any
    said: str
    may_connect: bool = False

    def __str__(self) -> str:
        return self.said


@dataclasses.dataclass(frozen=True)
class Fault:
    """Something that must not be; faults of one kind at one place are the same."""

    kind: str
    place: str
    details: str = dataclasses.field(default="", compare=False)


class TooLong(BaseException):
    """The limit of time is over."""


class Watch:
    """Notes what a call opens, changes and starts; Python has no way to remove the hook, so it is added once."""

    def __init__(self) -> None:
        self._work: Path | None = None
        self._may_run, self._may_connect, self._is_paused = "", False, False
        self.faults: list[Fault] = []
        sys.addaudithook(self._hook)

    @contextlib.contextmanager
    def on(self, box: Box, call: "Command | Function") -> Any:
        """Watch the block in which the call is made."""
        self.faults = []
        words = call.words if isinstance(call, Command) else ()
        self._may_run = task_files.NAME if any(word.startswith(task_files.NAME) for word in words) else ""
        self._may_connect = bool({"data", "fetch"} & set(words[:2])) or getattr(call, "may_connect", False)
        self._is_paused = isinstance(call, Command) and call.is_process
        self._work = Path(os.path.realpath(box.work))
        try:
            yield
        finally:
            self._work = None

    def _hook(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._work is None:
            return
        work, self._work = self._work, None  # what the hook itself does is not watched
        try:
            fault = self._judged(work, event, arguments)
            if fault is not None and len(self.faults) < 20:
                self.faults.append(fault)
        finally:
            self._work = work

    def _judged(self, work: Path, event: str, arguments: tuple[Any, ...]) -> Fault | None:
        # Downloads go to the folder of the datasets.
        allowed = (work, Path(os.environ.get("EVOMAL_DATA", work))) if self._may_connect else (work,)
        if event == "open":
            path, _, flags = arguments
            if isinstance(path, str | bytes) and isinstance(flags, int) and flags & _WRITING:
                return _written_outside(allowed, "open", path, follow=not flags & os.O_NOFOLLOW)
        elif event in _CHANGES:
            named = [argument for argument in arguments[:2] if isinstance(argument, str | bytes)]
            faults = (_written_outside(allowed, event, path, follow=False) for path in named)
            return next((fault for fault in faults if fault), None)
        elif (event in _STARTS and not self._is_paused) or (
            event == "pickle.find_class" and arguments[0].partition(".")[0] not in _PICKLED_BY_NUMBA
        ):
            return None if _is_called_by(*_STARTERS) else Fault("code", event, str(arguments)[:300])
        elif event == "socket.connect" and not self._may_connect:
            return Fault("network", _own_place(), str(arguments[1:])[:300])
        elif event in ("exec", "compile"):
            return self._judged_code(work, event, arguments)
        return None

    def _judged_code(self, work: Path, event: str, arguments: tuple[Any, ...]) -> Fault | None:
        code = arguments[0]
        name = getattr(code, "co_filename", arguments[1] if event == "compile" else "")
        is_brought = isinstance(name, str) and name.startswith(str(work)) and not (
            self._may_run and Path(name).name == self._may_run
        )  # fmt: skip
        holds_text = isinstance(code, str | bytes) and (b"forged" if isinstance(code, bytes) else "forged") in code
        if is_brought or (holds_text and not os.path.isfile(str(name))):
            return Fault("code", f"{event} in {_own_place()}", f"{name}: {code!r:.200}")
        return None


def judge(call: Command | Function, box: Box, watch: Watch) -> list[Fault]:
    """Every fault of a call in the box."""
    before, pages = os.getcwd(), _pages(box)
    os.chdir(box.here)
    try:
        with tempfile.TemporaryFile() as out, tempfile.TemporaryFile() as err, watch.on(box, call):
            outcome = _run_function(call) if isinstance(call, Function) else _run_command(call, out, err)
        faults = [_escaped(outcome)] if isinstance(outcome, BaseException) else outcome
        faults += watch.faults
    finally:
        os.chdir(before)
    if harm := box.harm():
        faults.append(Fault("write", "outside", harm))
    if isinstance(call, Command):
        faults += [
            fault for path, state in _pages(box).items() if pages.get(path) != state for fault in _judged_page(path)
        ]
    return faults


def _run_function(call: Function) -> list[Fault] | BaseException:
    said = io.StringIO()
    try:
        with _limited(), contextlib.redirect_stdout(said), contextlib.redirect_stderr(said), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            call.call()
    except EvomalError as error:
        return _judged_sentence(str(error), "an error")
    except BaseException as error:
        return error
    return []


def _run_command(call: Command, out_file: Any, err_file: Any) -> list[Fault] | BaseException:
    if call.is_process:
        return _run_process(call)
    outcome = _in_this_process(call, out_file, err_file)
    if isinstance(outcome, BaseException):
        return outcome
    code, noted = outcome
    texts = []
    for file in (out_file, err_file):
        file.seek(0)
        texts.append(file.read().decode(errors="backslashreplace"))
    faults = [Fault("warning", f"{shown.message}"[:80], f"{shown.filename}:{shown.lineno}") for shown in noted]
    return [*faults, *_judged_output(call, code or 0, *texts)]


def _in_this_process(call: Command, out_file: Any, err_file: Any) -> tuple[Any, list[Any]] | BaseException:
    """The exit code and the warnings, or what left the command; its streams are files, as a terminal would be."""
    out, err = (
        io.TextIOWrapper(io.FileIO(file.fileno(), "w", closefd=False), encoding=call.encoding, errors=errors)
        for file, errors in ((out_file, "strict"), (err_file, "backslashreplace"))
    )
    code: Any = 0
    try:
        with (
            _limited(),
            mock.patch.object(sys, "argv", ["evomal", *call.words]),
            mock.patch.object(sys, "stdout", out),
            mock.patch.object(sys, "stderr", err),
            # Typer removes escape sequences from what does not go to a terminal; here is shown what a terminal gets.
            mock.patch.dict(typer.echo.__globals__, should_strip_ansi=lambda *_, **__: False),
            _served_to_nobody(),
            warnings.catch_warnings(record=True) as noted,
        ):
            warnings.simplefilter("ignore")
            for category in (UserWarning, RuntimeWarning):  # those that a user would see
                warnings.simplefilter("always", category)
            try:
                main()
            finally:
                for stream in (sys.stdout, sys.stderr, out, err):  # the command may have put its own in their place
                    stream.flush()
    except SystemExit as end:
        code = end.code
    except BaseException as error:
        return error
    return code, noted


@contextlib.contextmanager
def _served_to_nobody() -> Iterator[None]:
    """A context in which `serve` gets ready and ends at once; its own tests attack the page."""
    with contextlib.ExitStack() as patched:
        patched.enter_context(mock.patch.object(webbrowser, "open"))
        if importlib.util.find_spec("uvicorn") is not None:
            patched.enter_context(mock.patch("uvicorn.Server.run"))
            patched.enter_context(mock.patch("evomal.server.serving._lower_priority"))  # cases to come go first, too
        yield


def _run_process(call: Command) -> list[Fault]:
    environment = {**os.environ, "PYTHONIOENCODING": call.encoding, "PYTHONDONTWRITEBYTECODE": "1"}
    try:
        done = subprocess.run(
            [sys.executable, "-m", "evomal", *map(os.fsencode, call.words)],
            capture_output=True,
            env=environment,
            timeout=2 * LIMIT,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return [Fault("hang", "a process", str(call))]
    except (UnicodeEncodeError, OSError):  # words that no shell can give, or too many
        return []
    out, err = (text.decode(call.encoding, "backslashreplace") for text in (done.stdout, done.stderr))
    return _judged_output(call, done.returncode, out, err)


def _judged_output(call: Command, code: Any, out: str, err: str) -> list[Fault]:
    faults = _judged_text(out, "output") + _judged_text(err, "errors")
    is_interrupted = code == 130 and err.endswith("evomal: interrupted\n")
    if code not in (0, 1, 2) and not (is_interrupted and any("interrupts" in word for word in call.words)):
        faults.append(Fault("exit code", str(code), err[-500:]))
    sentences = [line for line in err.splitlines() if line.startswith("evomal: ")]
    is_help = code == 2 and not err.strip() and "Usage: " in out
    if code in (1, 2) and not is_help:
        if len(sentences) != 1 or not err.rstrip("\n").endswith(sentences[0]):
            faults.append(Fault("sentence", "not one at the end", err[-1000:]))
        else:
            faults += _judged_sentence(sentences[0], "the sentence", LONGEST_SENTENCE + len(" ".join(call.words)))
    if "Traceback (most recent call last)" in err:
        faults.append(Fault("traceback", "printed", err[-1500:]))
    if found := _WARNING.search(err):
        faults.append(Fault("warning", err[found.start() : found.end() + 60].splitlines()[0], err[-500:]))
    # Behind another option it may be the value of that one, such as the name of a file.
    wants_json = any(word == "--json" and before[:2] != "--" for before, word in itertools.pairwise(call.words))
    if code == 0 and wants_json and not {"--help", "--version"} & set(call.words):
        try:
            json.loads(out, parse_constant=_refuse)
        except ValueError as error:
            faults.append(Fault("result", "the output is not JSON", f"{error}: {out[:300]}"))
    return faults


def _refuse(name: str) -> None:
    raise ValueError(f"{name} is not JSON")


def _judged_sentence(sentence: str, what: str, longest: int = LONGEST_SENTENCE) -> list[Fault]:
    if len(sentence) > longest:
        return [Fault("sentence", f"{what} is too long", f"{len(sentence)} characters: {sentence[:300]}")]
    if len(sentence.splitlines()) != 1 or not sentence.strip():
        return [Fault("sentence", f"{what} is not one line", repr(sentence[:300]))]
    return _judged_text(sentence, what)


def _judged_text(text: str, what: str) -> list[Fault]:
    """Nothing that a terminal would obey, and no line that only a stranger's text can have begun."""
    faults = []
    odd = next((place for place, character in enumerate(text) if _is_obeyed(character)), None)
    if odd is not None:
        faults.append(Fault("print", f"a control character in {what}", repr(text[max(0, odd - 80) : odd + 40])))
    if any(line.startswith(FORGED_LINE) for line in text.splitlines()):
        faults.append(Fault("print", f"a forged line in {what}", text[:500]))
    return faults


def _is_obeyed(character: str) -> bool:
    return (
        character != "\n" and not character.isprintable() and unicodedata.category(character) not in ("Zs", "Co", "Cn")
    )


def _pages(box: Box) -> dict[Path, tuple[int, int]]:
    """The pages in the working folder, and when each of them was written."""
    found = {}
    for folder, _, names in os.walk(box.work):
        for path in (Path(folder, name) for name in names if name.endswith((".html", ".md", ".svg", WAS_RUN))):
            if path.is_file() and not path.is_symlink():
                found[path] = (path.stat().st_mtime_ns, path.stat().st_ino)
    return found


def _judged_page(path: Path) -> list[Fault]:
    if path.name == WAS_RUN:
        return [Fault("code", "a text was run", str(path))]
    page = path.read_bytes()[:5_000_000].decode(errors="replace")
    if path.suffix == ".md":
        page = MarkdownIt("commonmark").enable("table").render(page)
    is_forged = FORGED_ELEMENT in page or "<script>forged" in page or f'="{FORGED_LINK}' in page
    return [Fault("markup", path.suffix, f"{path.name}: {page[:300]}")] if is_forged else []


@contextlib.contextmanager
def _limited() -> Any:
    def stop(number: int, frame: Any) -> None:
        raise TooLong

    before = signal.signal(signal.SIGALRM, stop)
    faulthandler.dump_traceback_later(3 * LIMIT, exit=True)  # where Python cannot be interrupted
    signal.setitimer(signal.ITIMER_REAL, LIMIT, 1.0)  # again, where something catches everything
    try:
        yield
    finally:
        faulthandler.cancel_dump_traceback_later()
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def _escaped(error: BaseException) -> Fault:
    """An exception that is not evomal's, by the innermost line of evomal that it passed."""
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/evomal/" in frame.filename]
    frames = [frame for frame in frames if "site-packages" not in frame.filename]
    innermost = frames[-1] if frames else None
    place = f"evomal/{innermost.filename.rpartition('/evomal/')[2]}:{innermost.lineno}" if innermost else "nowhere"
    shown = "".join(traceback.format_exception(error, limit=-6))[-2500:]
    if isinstance(error, TooLong):
        return Fault("hang", place, shown)
    return Fault("traceback", f"{type(error).__name__} at {place}", shown)


def _is_called_by(*places: str) -> bool:
    return any(place in frame.filename for frame in traceback.extract_stack() for place in places)


def _own_place() -> str:
    frames = [frame for frame in traceback.extract_stack() if "/evomal/" in frame.filename]
    return f"evomal/{frames[-1].filename.rpartition('/evomal/')[2]}:{frames[-1].lineno}" if frames else "nowhere"


def _written_outside(allowed: tuple[Path, ...], event: str, path: str | bytes, *, follow: bool = True) -> Fault | None:
    name = os.fsdecode(path)
    if follow:
        real = os.path.realpath(name)
    else:
        real = os.path.join(os.path.realpath(os.path.dirname(name) or "."), os.path.basename(name))
    if f"{real}/".startswith((*(f"{folder}/" for folder in allowed), "/dev/null/", *_caches())):
        return None
    return Fault("write", f"{event} in {_own_place()}", f"{name} -> {real}")


def _caches() -> tuple[str, ...]:
    """Where libraries keep what they compiled (compiled kernels of a checkout are beside its modules), and the private
    folder that a pool of worker processes makes and removes."""
    home = os.path.expanduser("~")
    cache = os.environ.get("XDG_CACHE_HOME", f"{home}/.cache")
    own = os.environ.get("MPLCONFIGDIR", f"{os.environ.get('XDG_CONFIG_HOME', f'{home}/.config')}/matplotlib")
    temporary = tuple(f"{tempfile.gettempdir()}/{prefix}" for prefix in ("torchinductor_", "evomal-"))
    kernels = os.environ.get("NUMBA_CACHE_DIR", cache)
    return (f"{cache}/", f"{own}/", *temporary, f"{kernels}/", f"{Path(__file__).parents[2] / 'evomal'}/")


def _short(word: str) -> str:
    shown = repr(word) if not word or not word.isprintable() or " " in word else word
    return shown if len(shown) <= 100 else f"{shown[:90]}… ({len(word)} characters)"
