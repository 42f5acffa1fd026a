"""Short searches by the real command, killed at all kinds of moments: `python -m tests.searches TOP SEARCHES KILLS`."""

import contextlib
import io
import itertools
import json
import os
import shutil
import signal
import sys
import time
import traceback
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from unittest import mock

import numpy as np
import torch

from evomal.cli import main
from evomal.losses import load_loss
from evomal.methods import METHODS
from evomal.randomness import generator
from evomal.runs import RunStore, store
from evomal.runs.lock import is_held
from evomal.settings import setting_text
from tests.protocols import ON_RUNGS, ONE_TRAINING

ROOT = Path(__file__).parents[1]
SHORT = {**ONE_TRAINING, "population": 6, "generations": 4, "meta_steps": 5, "training_steps": 30, "filter_steps": 20}
SEARCHES = (
    *(("--method", method, "--seed", str(seed)) for seed, method in enumerate(METHODS, 1)),
    ("--seed", "4", "--set", "population_mode=looped", "--set", "chunk=2", "--set", "inner_steps=2"),
    ("--seed", "5", "--set", "islands=2", "--set", "first_trees=20", "--set", "surplus=1.5", "--set", "migration=2"),
    ("--seed", "15", *(text for key, value in ON_RUNGS.items() for text in ("--set", f"{key}={setting_text(value)}"))),
    # Trees of more than 64 nodes make the engine widen its programs, which it does not when resumed behind them.
    ("--seed", "13", "--set", "initial_height=6,7", "--set", "filters=symbolic,dead"),
)
WAYS = (
    "in an insert",
    "in the final",
    "at a sync or replacement",
    "at a journal",
    "at a new best.json",
    "at a random moment",
)
HOT, HALF = "journals to be undone", "halves of best.json"

Due = Callable[[], bool]


def search_arguments(folder: Path, *options: object, **changes: object) -> list[str]:
    """The command of a short search, whose settings can be changed."""
    settings = [
        text for key, value in {**SHORT, **changes}.items() for text in ("--set", f"{key}={setting_text(value)}")
    ]
    fixed = ["search", "diabetes", "--model", "mlp:hidden=8", "--device", "cpu", "--out", str(folder)]
    return [*fixed, *settings, *map(str, options)]


def commanded(arguments: list[str]) -> int:
    """Run the command in this process, silently where it succeeds; the exit code."""
    code = 0
    with (
        mock.patch.object(sys, "argv", ["evomal", *arguments]),
        contextlib.redirect_stdout(io.StringIO()),
        contextlib.redirect_stderr(io.StringIO()) as said,
    ):
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
    if code:
        sys.stderr.write(said.getvalue())
    return code


def dump_of(folder: Path) -> str:
    """The record of a folder, times aside."""
    with RunStore.read(folder) as opened:
        return opened.dump()


def beginning(whole: str, generations: int, trials: int) -> str:
    """What of a whole run's dump was recorded when so many generations, and trials outside them, were."""
    places = itertools.count()
    entries = ((line, json.loads(line)) for line in whole.splitlines(keepends=True))
    return "".join(
        line
        for line, entry in entries
        if entry["kind"] != "ending"
        and entry.get("generation", -1) < generations
        and (entry["kind"] != "trial" or next(places) < trials)
    )


def forked(prepare: Callable[[], None], do: Callable[[], int]) -> int:
    """Do something in a child that exits with its code; the number of the process."""
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        prepare()
        code = do()
    except BaseException:
        traceback.print_exc()
    os._exit(code)


class Killer:
    """Forks a search, kills it, looks at what is left, and resumes it until it is complete.

    Importing takes seconds, so that is done once, here; the first search, in this process, also loads the kernels.
    """

    def __init__(self, top: Path, number: int) -> None:
        self.seen: Counter[str] = Counter()
        self._top, self._number = top, number
        whole = top / f"{number}-whole"
        assert commanded(search_arguments(whole, *SEARCHES[number])) == 0
        self._dump, self._best = dump_of(whole), (whole / "best.json").read_bytes()
        begin = time.monotonic()
        self._complete(top / f"{number}-forked")
        self._length = time.monotonic() - begin

    def kill(self, kills: int) -> None:
        """Kill so many times; every search that was killed comes to its end."""
        killed = run = attempt = 0
        while killed < kills:
            assert attempt < 10 * kills, f"of {attempt} searches only {killed} could be killed"
            folder = self._top / f"{self._number}-killed-{run}"
            if self._is_killed(folder, WAYS[attempt % len(WAYS)], generator(self._number, "kill", attempt)):
                self._look(folder)
                killed += 1
            else:
                self._require_whole(folder)
                run += 1
            attempt += 1
        self._complete(self._top / f"{self._number}-killed-{run}")

    def _is_killed(self, folder: Path, way: str, rng: np.random.Generator) -> bool:
        """Whether it was, or came to its end before that."""
        halves = _traces(folder, ".best.json.")
        prepare, due = self._planned(folder, way, rng)
        child = self._forked(folder, prepare)
        ended, status = 0, 0
        while not ended and not due():
            time.sleep(1e-4)
            ended, status = os.waitpid(child, os.WNOHANG)
        if not ended:
            os.kill(child, signal.SIGKILL)
            _, status = os.waitpid(child, 0)
        assert status in (0, signal.SIGKILL), f"killed {way}, the search ended with status {status}"
        if status:
            self.seen[way] += 1
            self.seen[HALF] += not halves >= _traces(folder, ".best.json.")
        return status != 0

    def _planned(self, folder: Path, way: str, rng: np.random.Generator) -> tuple[Callable[[], None], Due]:
        """What is prepared in the search's process, and when it is killed from outside."""
        if way == "in an insert":
            # Behind the row of a chunk and its first candidate: then pages of it are in the file.
            rows = (1 + SHORT["population"]) * int(rng.integers(2)) + int(rng.integers(2, 1 + SHORT["population"]))
            return lambda: die_in_an_insert(rows, is_of_a_generation), lambda: False
        if way == "in the final":
            rows = int(rng.integers(30))
            return lambda: die_in_an_insert(rows, is_of_the_final), lambda: False
        if way == "at a sync or replacement":
            calls = int(rng.integers(4))
            return lambda: die_at_a_sync_or_replacement(calls), lambda: False
        moment = time.monotonic() + rng.uniform(0.0, self._length)
        if way == "at a random moment":
            return lambda: None, lambda: time.monotonic() >= moment
        prefix = "run.sqlite-journal" if way == "at a journal" else ".best.json."
        before = _traces(folder, prefix)  # left by those killed earlier
        return lambda: None, lambda: time.monotonic() >= moment and not before >= _traces(folder, prefix)

    def _forked(self, folder: Path, prepare: Callable[[], None]) -> int:
        is_begun = (folder / "run.sqlite").exists()
        begin = search_arguments(folder, *SEARCHES[self._number])
        return forked(prepare, lambda: commanded(["resume", str(folder)] if is_begun else begin))

    def _complete(self, folder: Path) -> None:
        _, status = os.waitpid(self._forked(folder, lambda: None), 0)
        assert status == 0
        self._require_whole(folder)

    def _require_whole(self, folder: Path) -> None:
        assert dump_of(folder) == self._dump, f"{folder}: is not the record of an uninterrupted run"
        assert (folder / "best.json").read_bytes() == self._best
        self.seen["runs completed"] += 1

    def _look(self, folder: Path) -> None:
        """A killed search holds no lock and has recorded the beginning of the whole run."""
        assert not is_held(folder)
        if (folder / "best.json").exists():
            load_loss(folder / "best.json")
        if not (folder / "run.sqlite").exists():
            self.seen["without a record yet"] += 1
            return
        journal = folder / "run.sqlite-journal"
        self.seen[HOT] += journal.exists() and journal.read_bytes()[:1] not in (b"", b"\0")
        copy = self._top / "copy"  # reading would undo what the resumed search is to undo
        shutil.copytree(folder, copy)
        with RunStore.read(copy) as opened:
            generations, trials, dump = len(opened.complete_chunks()), opened.trials(), opened.dump()
        shutil.rmtree(copy)
        assert dump in (self._dump, beginning(self._dump, generations, len(trials)))
        self.seen[f"with {generations} generations"] += 1
        in_the_final = len({trial.seed for trial in trials if trial.stage == "final"})
        self.seen[f"with {in_the_final} seeds of the final"] += bool(in_the_final)


def is_of_a_generation(table, values):
    return table in ("chunks", "candidates")


def is_of_the_final(table, values):
    return table == "trials" and values[1] == "final"


def die_in_an_insert(rows_before: int, is_counted: Callable[..., bool]) -> None:
    """Behind so many rows of some kind."""
    connect, insert = store.connect, store.insert
    dying = _dying(insert, iter(range(rows_before)))

    def inserting(connection, table, values):
        return (dying if is_counted(table, values) else insert)(connection, table, values)

    def connecting(path, **options):
        connection = connect(path, **options)
        connection.execute("PRAGMA cache_size = 1")  # pages go to the file before the commit, too
        return connection

    store.connect, store.insert = connecting, inserting


def die_at_a_sync_or_replacement(calls_before: int) -> None:
    """Kill this process at one of the next calls that make a file last."""
    left = iter(range(calls_before))
    os.fsync, os.replace = _dying(os.fsync, left), _dying(os.replace, left)


def _dying(function, left):
    """The function, until nothing is left."""

    def called(*arguments, **options):
        if next(left, None) is None:
            os.kill(os.getpid(), signal.SIGKILL)
        return function(*arguments, **options)

    return called


def _traces(folder: Path, prefix: str) -> set[tuple[str, int]]:
    """Files of such names with the time of their last change."""
    found = set()
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if entry.name.startswith(prefix):
                found.add((entry.name, entry.stat().st_mtime_ns))
    return found


if __name__ == "__main__":
    torch.set_num_threads(1)  # OpenMP's threads would not survive a fork
    top_folder, searches, all_kills = Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3])
    total: Counter[str] = Counter()
    for place in range(searches):
        killer = Killer(top_folder, place)
        killer.kill(all_kills // searches + (place < all_kills % searches))
        total += killer.seen
    sys.stdout.write(json.dumps(total, indent=2, sort_keys=True))
