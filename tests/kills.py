"""Commands that write, killed at all kinds of moments and given again: `python -m tests.kills TOP WORK KILLS`."""

import itertools
import json
import os
import resource
import shutil
import signal
import sys
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import evomal
from evomal.randomness import generator
from tests.fuzzing.corpus import MODEL, settings_words
from tests.searches import commanded, die_at_a_sync_or_replacement, forked

WAYS = ("in a write", "at a sync or replacement", "at a random moment")
LOG = "trainings.jsonl"
_FEW = (*MODEL, "--seeds", "3", *settings_words(), "--out", "made")
_OLD, _NEW = evomal.losses.named_loss("ce"), evomal.ExpressionLoss("abs(log(mul(y, f)))", [2.0, 1.5, 1.0, 0.5])


def _save_loss() -> int:
    evomal.save_loss(_NEW, "loss.json")
    return 0


def _write_inputs() -> None:
    """A run, and the file that `save_loss` replaces."""
    if not Path("run").exists():
        assert commanded(["search", "diabetes", *MODEL, "--seed", "1", *settings_words(), "--out", "run"]) == 0
        assert Path("run/best.json").exists()
    evomal.save_loss(_OLD, "loss.json")


@dataclass(frozen=True)
class Work:
    """What is done, and what it writes."""

    do: Callable[[], int]
    outputs: str
    """A folder or a file, of which everything must be as if nothing had been killed."""


def _command(outputs: str, *words: str) -> Work:
    return Work(lambda: commanded([*words]), outputs)


WORKS = {
    "compare": _command("made", "compare", "diabetes", "--losses", "huber,mae", "--tune-lr", "2", *_FEW),
    "compare methods": _command("made", "compare", "diabetes", "--methods", "random", *_FEW),
    "compare rates": _command("made", "compare", "diabetes", "--losses", "huber", "--rates", "0.1,0.01", *_FEW),
    "transfer": _command(
        "made", "transfer", "--from", "diabetes", "--source-model", "mlp:hidden=3", "--to", "diabetes", "--methods",
        "random", "--search-seeds", "2", *_FEW,
    ),
    "report": _command("run/report.html", "report", "run"),
    "card": _command("made", "card", "run/best.json", "--out", "made"),
    "analyse": _command("made", "analyse", "front", "run", "--out", "made"),
    "export": _command("made.py", "export", "run/best.json", "--out", "made.py"),
    "save_loss": Work(_save_loss, "loss.json"),
}  # fmt: skip


class Killer:
    """Forks the work, kills it, looks at what is left, and repeats it until it is complete.

    Everything happens in one folder, as results name it. Importing takes seconds, so that is done once, here.
    """

    def __init__(self, top: Path, name: str) -> None:
        self.seen: Counter[str] = Counter()
        self._work, self._seed = WORKS[name], list(WORKS).index(name)
        top.mkdir(parents=True, exist_ok=True)
        os.chdir(top)
        self._begin_anew()
        assert self._work.do() == 0
        self._whole = _contents(self._work.outputs)
        self._begin_anew()
        begin = time.monotonic()
        self._wait_for(forked(lambda: None, self._work.do))
        self._length = time.monotonic() - begin
        # A figure may name the moment at which it was drawn; such a file is only looked at for its end.
        again = _contents(self._work.outputs)
        assert again.keys() == self._whole.keys()
        self._changing = {name for name, content in again.items() if content != self._whole[name]}
        assert all(name.endswith((".pdf", ".png", ".svg")) or _is_record(name) for name in self._changing), (
            self._changing
        )

    def kill(self, kills: int) -> None:
        """Kill so many times; what was killed is complete when it was given again."""
        killed = 0
        self._begin_anew()
        for attempt in itertools.count():
            if killed == kills:
                break
            assert attempt < 20 * kills + 20, f"of {attempt} attempts only {killed} could be killed"
            way = WAYS[attempt % len(WAYS)]
            if self._is_killed(way, generator(self._seed, "kill", attempt)):
                killed += 1
                self.seen[way] += 1
                self._look()
            else:
                self._require_whole()
        self._wait_for(forked(lambda: None, self._work.do))
        self._require_whole()

    def _is_killed(self, way: str, rng: np.random.Generator) -> bool:
        longest = max(map(len, self._whole.values()))
        size, calls = int(longest * rng.uniform() ** 2), int(rng.integers(6))
        prepare: dict[str, Callable[[], None]] = {
            "in a write": lambda: _die_in_a_write(size),
            "at a sync or replacement": lambda: die_at_a_sync_or_replacement(calls),
            "at a random moment": lambda: None,
        }
        child = forked(prepare[way], self._work.do)
        if way == "at a random moment":
            time.sleep(rng.uniform(0.0, self._length))
            os.kill(child, signal.SIGKILL)
        _, status = os.waitpid(child, 0)
        assert status in (0, signal.SIGKILL, signal.SIGXFSZ), f"killed {way}, it ended with status {status}"
        return status != 0

    def _wait_for(self, child: int) -> None:
        _, status = os.waitpid(child, 0)
        assert status == 0

    def _look(self) -> None:
        """What is there is whole; of a log, each line but the last."""
        for name, content in _contents(self._work.outputs).items():
            whole = self._whole.get(name)
            if whole is None or name in self._changing:
                self.seen["beside"] += 1  # a record, or what only a complete run names otherwise
            elif name.endswith("best.json"):
                evomal.load_loss(name)  # the best loss so far
            elif name.endswith(LOG):
                self.seen["logs"] += whole != content
                assert whole.startswith(content.rpartition(b"\n")[0]), f"{name}: is not the beginning of the whole log"
            else:
                is_old = name == "loss.json" and json.loads(content).get("name") == "ce"
                self.seen["old" if is_old else "new"] += 1
                assert is_old or content == whole, f"{name}: is a part of what it should be"

    def _require_whole(self) -> None:
        found = _contents(self._work.outputs)
        assert found.keys() == self._whole.keys()
        for name in found.keys() - self._changing:
            assert found[name] == self._whole[name], f"{name}: differs from that of an uninterrupted run"
        self.seen["completed"] += 1
        self._begin_anew()

    def _begin_anew(self) -> None:
        shutil.rmtree("made", ignore_errors=True)
        for name in ("made.py", "run/report.html", "loss.json"):
            Path(name).unlink(missing_ok=True)
        _write_inputs()


def _is_record(name: str) -> bool:
    """Whether the file holds times."""
    return name.endswith("run.sqlite")


def _contents(place: str) -> dict[str, bytes]:
    """The files at a place; those whose name begins with a dot are locks, and left by those that were killed."""
    paths = sorted(Path(place).rglob("*")) if Path(place).is_dir() else [Path(place)]
    return {str(path): path.read_bytes() for path in paths if path.is_file() and not path.name.startswith(".")}


def _die_in_a_write(size: int) -> None:
    """The kernel writes up to this size of any file, and then kills the process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)


if __name__ == "__main__":
    torch.set_num_threads(1)  # OpenMP's threads would not survive a fork
    killer = Killer(Path(sys.argv[1]).resolve(), sys.argv[2])
    killer.kill(int(sys.argv[3]))
    sys.stdout.write(json.dumps(killer.seen, sort_keys=True))
