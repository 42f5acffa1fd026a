"""The runs and comparisons below a folder, kept up to date by one thread for all requests."""

import collections
import contextlib
import dataclasses
import hashlib
import itertools
import os
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from evomal.errors import EvomalError
from evomal.files import open_foreign
from evomal.runs.following import FollowedRun
from evomal.runs.lock import held_for, is_stop_requested
from evomal.runs.reading import folders_with
from evomal.runs.recorded_run import RunState
from evomal.runs.store import RECORD_NAME
from evomal.runs.views import RunView
from evomal.server.summaries import RunSummary, summary_of
from evomal.text import one_line
from evomal.verdict.comparison import Comparison, RateCurve, Transfer
from evomal.verdict.folder import LOG_NAME, RecordedVerdicts, recorded_verdicts
from evomal.verdict.plan import SEARCHES

RESULT_NAMES = tuple(f"{kind.file_name}.json" for kind in (Comparison, Transfer, RateCurve))
OUTPUT_NAME = "serve.log"
"""The file with the output of a search or a comparison that a button started."""
_SECONDS_BETWEEN_LOOKS, _SECONDS_BETWEEN_SCANS = 1.0, 5.0
_SECONDS_PER_RUN = 0.3  # of reading at once, so that a large record does not keep the others waiting
_SHARE_OF_SCANS = 0.05  # of the time, at most: a large tree is scanned less often
_READ_AT_ONCE = 1_000_000  # bytes of a log
_TRAINING = b'"training":'
_VERSIONS = itertools.count(1)
"""Shared by everything that changes, so that a folder that is removed and created again gets no earlier version."""


@dataclass(frozen=True)
class ComparisonView:
    """A comparison at one moment."""

    folder: Path
    version: int
    verdicts: RecordedVerdicts
    trainings: int
    """How many are in its log."""
    written: float
    """When its files last changed, in seconds since 1970."""
    is_running: bool

    @property
    def state(self) -> str:
        """Its state, in a word."""
        if self.is_running:
            return str(RunState.RUNNING)
        return str(RunState.COMPLETE if self.verdicts.verdicts else RunState.INTERRUPTED)


class FollowedComparison:
    """The folder of one comparison; `refresh` reads what is new."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.view: ComparisonView | None = None
        self._stamps: tuple[tuple[int, int, int], ...] = ()
        self._verdicts = RecordedVerdicts((), (), False)
        self._offset = self._trainings = self._inode = 0

    def refresh(self) -> bool:
        """Read what is new; returns whether anything changed."""
        stamps = tuple(_stamp(self.folder / name) for name in (*RESULT_NAMES, LOG_NAME))
        is_running = held_for(self.folder) == "comparison"
        if self.view is not None and stamps == self._stamps and is_running == self.view.is_running:
            return False
        if stamps[:-1] != self._stamps[:-1] or self.view is None:
            self._verdicts = self._read_verdicts()
        self._count_trainings(stamps[-1])
        self._stamps = stamps
        written = max(changed for _, _, changed in stamps) / 1e9
        self.view = ComparisonView(self.folder, next(_VERSIONS), self._verdicts, self._trainings, written, is_running)
        return True

    def _read_verdicts(self) -> RecordedVerdicts:
        try:
            return recorded_verdicts(self.folder)
        except Exception as error:  # as for runs: forged files must not hide other folders
            return RecordedVerdicts((), (_not_understood(error),), False)

    def _count_trainings(self, stamp: tuple[int, int, int]) -> None:
        """Count the trainings in the lines that were appended to the log."""
        if stamp[0] != self._inode or stamp[1] < self._offset:
            self._offset = self._trainings = 0
        self._inode = stamp[0]
        with contextlib.suppress(EvomalError, OSError), open_foreign(self.folder / LOG_NAME) as file:
            file.seek(self._offset)
            while part := file.read(_READ_AT_ONCE):
                whole = part.rpartition(b"\n")[0]
                if not whole:
                    break
                self._trainings += whole.count(_TRAINING)
                self._offset += len(whole) + 1
                file.seek(self._offset)


class FollowedFolder:
    """A run with its summary, and with the files beside the record that its page shows."""

    def __init__(self, folder: Path, key: str, name: str) -> None:
        self.folder, self.key, self.name = folder, key, name
        self.version = self.first_version = next(_VERSIONS)
        self.expected_until = 0.0
        """Until when a change is expected because of a button, by the clock of `time.monotonic`."""
        self._run = FollowedRun(folder)
        self._beside: tuple[object, ...] = ()
        self.summary = summary_of(self.view, key, name)

    @property
    def view(self) -> RunView:
        """The run as it was when it was read last."""
        return self._run.view

    @property
    def is_being_read(self) -> bool:
        """Whether a part of the record has not been read yet."""
        return not self.view.is_whole and not self.view.head.problem

    def refresh(self) -> bool:
        """Read what is new; returns whether anything changed."""
        beside = (
            is_stop_requested(self.folder),
            *(_stamp(self.folder / name) for name in (*RESULT_NAMES, OUTPUT_NAME)),
        )
        changed = self._run.refresh(_SECONDS_PER_RUN)
        if changed:
            self.summary = self._summary()
        if changed or beside != self._beside:
            self.version, self._beside, changed = next(_VERSIONS), beside, True
        return changed

    def _summary(self) -> RunSummary:
        try:
            return summary_of(self.view, self.key, self.name)
        except EvomalError as error:  # the record was damaged or removed since
            problem = str(error)
        except Exception as error:  # a forged record can cause any error, and must not hide the other runs
            problem = f"{self.folder}: {_not_understood(error)}"
        return dataclasses.replace(self.summary, state=RunState.UNREADABLE, problem=problem)


def _not_understood(error: Exception) -> str:
    return f"cannot be understood ({type(error).__name__}: {one_line(error)})"


def _stamp(path: Path) -> tuple[int, int, int]:
    """Inode, size and time of change of a file; zeros if there is none."""
    try:
        found = os.stat(path, follow_symlinks=False)
    except OSError:
        return (0, 0, 0)
    return found.st_ino, found.st_size, found.st_mtime_ns


def key_of(folder: Path, top: Path) -> str:
    """The key of a folder in addresses, a hash, so that paths never appear in addresses nor addresses in paths."""
    return hashlib.sha256(os.fsencode(os.path.relpath(folder, top))).hexdigest()[:16]


def comparison_of(folder: Path) -> Path | None:
    """The folder of the comparison that a run belongs to; None if it belongs to none."""
    return folder.parent.parent if folder.parent.name == SEARCHES else None


class Library:
    """Everything below a folder. One thread refreshes it; all others use the views, which do not change.

    `on_change` is called by that thread after changes.
    """

    def __init__(self, top: Path, on_change: Callable[[], None] = lambda: None) -> None:
        self.top = top
        self.runs: dict[str, FollowedFolder] = {}
        self.comparisons: dict[str, FollowedComparison] = {}
        self.searches: dict[str, list[FollowedFolder]] = {}
        """The runs that are part of a comparison, by its key."""
        self.version = 0
        """Counts changes of anything."""
        self.on_change = on_change
        self._next_scan = 0.0
        self._end = threading.Event()
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Start the thread that watches the folder."""
        self._thread = threading.Thread(target=self._watch, name="evomal-watch", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Stop that thread, and wait for its end."""
        self._end.set()
        if self._thread is not None:
            self._thread.join()

    def refresh(self, *, everything: bool = True) -> bool:
        """Read what is new; with `everything`, also look for new folders, and at runs that are not running."""
        changed = self._scan() if everything else False
        reported = time.monotonic()
        every: list[FollowedFolder | FollowedComparison] = [*self.runs.values(), *self.comparisons.values()]
        for followed in every:
            if self._end.is_set():
                break
            if not everything and not _may_change_soon(followed):
                continue
            changed = followed.refresh() or changed
            if changed and time.monotonic() - reported > _SECONDS_BETWEEN_LOOKS:  # while many runs are read at first
                self._report_change()
                changed, reported = False, time.monotonic()
        if changed:
            self._report_change()
        return changed

    def name_of(self, folder: Path) -> str:
        """The path of a folder below the top, for people."""
        return os.path.relpath(folder, self.top)

    def _report_change(self) -> None:
        self.version += 1
        self.on_change()

    def _watch(self) -> None:
        while not self._end.is_set():
            begin = time.monotonic()
            is_due = begin >= self._next_scan
            self.refresh(everything=is_due)
            if is_due:
                taken = time.monotonic() - begin
                self._next_scan = begin + max(_SECONDS_BETWEEN_SCANS, taken / _SHARE_OF_SCANS)
            is_reading = any(run.is_being_read for run in self.runs.values())
            self._end.wait(0.0 if is_reading else _SECONDS_BETWEEN_LOOKS)

    def _scan(self) -> bool:
        """Find new folders and forget removed ones; returns whether there are any."""
        runs, comparisons, searches = {}, {}, collections.defaultdict(list)
        results = {*RESULT_NAMES, LOG_NAME}
        for folder, names in folders_with({RECORD_NAME, *results}, self.top):
            key = key_of(folder, self.top)
            if RECORD_NAME in names:
                runs[key] = self.runs.get(key) or FollowedFolder(folder, key, self.name_of(folder))
                if (comparison := comparison_of(folder)) is not None:
                    searches[key_of(comparison, self.top)].append(runs[key])
            if names & results:
                comparisons[key] = self.comparisons.get(key) or FollowedComparison(folder)
        changed = runs.keys() != self.runs.keys() or comparisons.keys() != self.comparisons.keys()
        self.runs, self.comparisons, self.searches = runs, comparisons, searches
        return changed


def _may_change_soon(followed: FollowedFolder | FollowedComparison) -> bool:
    """Whether it may change within a second."""
    if isinstance(followed, FollowedComparison):
        return followed.view is not None and followed.view.is_running
    return followed.is_being_read or followed.summary.is_running or time.monotonic() < followed.expected_until
