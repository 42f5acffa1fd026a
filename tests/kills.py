"""Commands that write, killed at all kinds of moments and given again: `python -m tests.kills TOP KILLS WORK...`."""

import contextlib
import gzip
import hashlib
import io
import itertools
import json
import os
import resource
import shutil
import signal
import sys
import tarfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch

import evomal
from evomal.errors import StoppedError
from evomal.files import create_folder, write_atomically
from evomal.randomness import generator
from evomal.runs.lock import is_stop_requested, request_stop
from evomal.tasks.datasets import Download, fetch
from evomal.tasks.datasets.fetching import ArchiveMember
from tests.campaigns.tiny import without_times
from tests.fuzzing.corpus import MODEL, TINY, settings_words
from tests.searches import commanded, die_at_a_sync_or_replacement, dump_of, forked

WAYS = ("in a write", "at a sync or replacement", "at a random moment")
LOG = "trainings.jsonl"
_WITH_TIMES = ("campaign.md", "times.json")  # in whole seconds, which two runs may have in common by chance
_WITH_DATES = (".pdf", ".png", ".svg")
_LONGEST_END = 30.0  # seconds that workers may take to notice that nobody waits for them
_FEW = (*MODEL, "--seeds", "3", *settings_words(), "--out", "made")
_OLD, _NEW = evomal.losses.named_loss("ce"), evomal.ExpressionLoss("abs(log(mul(y, f)))", [2.0, 1.5, 1.0, 0.5])


def _save_loss() -> int:
    evomal.save_loss(_NEW, "loss.json")
    return 0


def _search_with_stops() -> int:
    """Search, with a request to stop after every generation, as the live page makes them, until nothing is left."""
    folder, settings = Path("made"), {**TINY, "generations": 4, "device": "cpu", "seed": 1}

    def stop(_: object) -> None:
        request_stop(folder)

    while True:
        with contextlib.suppress(StoppedError):
            evomal.search(evomal.load_task("diabetes", MODEL[1]), folder=folder, callback=stop, **settings)
            assert not is_stop_requested(folder)
            return 0


def _search_jobs() -> int:
    """Search in two processes; what was killed is resumed in two others."""
    begin = ["search", "diabetes", *MODEL, "--seed", "1", *settings_words(), "--out", "made"]
    return commanded([*(["resume", "made"] if Path("made/run.sqlite").exists() else begin), "--jobs", "2"])


def _unpack() -> int:
    """Unpack a dataset from an archive that somebody has put into its folder."""
    contents = {f"data/{name}": name.encode() * 40_000 for name in ("boston_house_prices.csv", "more.csv")}
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w") as tar:
        for name, content in contents.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    archive = gzip.compress(packed.getvalue(), mtime=0)
    write_atomically(create_folder(Path("made") / "boston") / "boston.tgz", archive)
    members = {name: ArchiveMember(Path(name).name, _sha256(content)) for name, content in contents.items()}
    fetch("boston", "made", progress=False, sources=[Download("boston.tgz", (), _sha256(archive), members)])
    return 0


def _sha256(content: bytes) -> str:
    return f"sha256:{hashlib.sha256(content).hexdigest()}"


def _write_inputs() -> None:
    """A run, a campaign, and the file that `save_loss` replaces."""
    if not Path("run").exists():
        assert commanded(["search", "diabetes", *MODEL, "--seed", "1", *settings_words(), "--out", "run"]) == 0
        assert Path("run/best.json").exists()
    settings = "".join(f"{key} = {value}\n" for key, value in TINY.items())
    Path("tiny.toml").write_text(_CAMPAIGN + settings)
    evomal.save_loss(_OLD, "loss.json")


_CAMPAIGN = """
title = "A tiny campaign"
presets = ["paper"]
methods = ["random"]
losses = ["huber"]
seeds = 2
tune_lr = 0
rescale = false
search_seeds = 2
[[tasks]]
name = "clean"
task = "diabetes"
model = "mlp:hidden=4"
figures = { kinds = ["training-curves"] }
[settings]
device = "cpu"
"""


@dataclass(frozen=True)
class Work:
    """What is done, and what it writes."""

    do: Callable[[], int]
    outputs: str
    """A folder or a file, of which everything must be as if nothing had been killed."""
    ways: tuple[str, ...] = WAYS


def _command(outputs: str, *words: str) -> Work:
    # Another process that may write no more does not die of it but says so.
    return Work(lambda: commanded([*words]), outputs, WAYS[1:] if "--jobs" in words else WAYS)


WORKS = {
    "compare": _command("made", "compare", "diabetes", "--losses", "huber,mae", "--tune-lr", "2", *_FEW),
    "compare methods": _command("made", "compare", "diabetes", "--methods", "random", *_FEW),
    "compare rates": _command("made", "compare", "diabetes", "--losses", "huber", "--rates", "0.1,0.01", *_FEW),
    "transfer": _command(
        "made", "transfer", "--from", "diabetes", "--source-model", "mlp:hidden=3", "--to", "diabetes", "--methods",
        "random", "--search-seeds", "2", *_FEW,
    ),
    "compare jobs": _command("made", "compare", "diabetes", "--methods", "random", "--jobs", "2", *_FEW),
    "campaign": _command("made", "campaign", "tiny.toml", "--out", "made"),
    "campaign jobs": _command("made", "campaign", "tiny.toml", "--out", "made", "--jobs", "2"),
    "search with stops": Work(_search_with_stops, "made"),
    "unpack": Work(_unpack, "made"),
    "report": _command("run/report.html", "report", "run"),
    "card": _command("made", "card", "run/best.json", "--out", "made"),
    "analyse": _command("made", "analyse", "front", "run", "--out", "made"),
    "export": _command("made.py", "export", "run/best.json", "--out", "made.py"),
    "save_loss": Work(_save_loss, "loss.json"),
    "search jobs": Work(_search_jobs, "made", WAYS[1:]),
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
        self._meaning = {name: _meaning(name, content) for name, content in self._whole.items()}
        self._begin_anew()
        begin = time.monotonic()
        self._complete()
        self._length = time.monotonic() - begin
        # A figure may name the moment at which it was drawn; such a file is only looked at for its end.
        again = _contents(self._work.outputs)
        assert again.keys() == self._whole.keys()
        steady = {name for name in again if not name.endswith(_WITH_TIMES)}
        dated = {name for name in steady if _meaning(name, again[name]) != self._meaning[name]}
        assert all(name.endswith(_WITH_DATES) for name in dated), dated
        self._changing = again.keys() - steady | dated

    def kill(self, kills: int) -> None:
        """Kill so many times; what was killed is complete when it was given again."""
        killed = 0
        self._begin_anew()
        for attempt in itertools.count():
            if killed == kills:
                break
            assert attempt < 20 * kills + 20, f"of {attempt} attempts only {killed} could be killed"
            way = self._work.ways[attempt % len(self._work.ways)]
            if self._is_killed(way, generator(self._seed, "kill", attempt)):
                killed += 1
                self.seen[way] += 1
                self._look()
            else:
                self._require_whole()
        self._complete()
        self._require_whole()

    def _is_killed(self, way: str, rng: np.random.Generator) -> bool:
        longest = max(map(len, self._whole.values()))
        size, calls = int(longest * rng.uniform() ** 2), int(rng.integers(6))
        prepare: dict[str, Callable[[], None]] = {
            "in a write": lambda: _die_in_a_write(size),
            "at a sync or replacement": lambda: die_at_a_sync_or_replacement(calls),
            "at a random moment": lambda: None,
        }
        child = self._forked(prepare[way])
        if way == "at a random moment":
            time.sleep(rng.uniform(0.0, self._length))
            os.kill(child, signal.SIGKILL)
        status = self._ended(child)
        assert status in (0, signal.SIGKILL, signal.SIGXFSZ), f"killed {way}, it ended with status {status}"
        return status != 0

    def _complete(self) -> None:
        assert self._ended(self._forked(lambda: None)) == 0

    def _forked(self, prepare: Callable[[], None]) -> int:
        """The work in a child with a process group of its own."""

        def prepared() -> None:
            os.setpgid(0, 0)
            prepare()

        return forked(prepared, self._work.do)

    def _ended(self, child: int) -> int:
        """The status of a child when it and its workers have ended, which hold what they were writing until then."""
        _, status = os.waitpid(child, 0)
        deadline = time.monotonic() + _LONGEST_END
        with contextlib.suppress(ProcessLookupError):
            while True:
                os.killpg(child, 0)
                assert time.monotonic() < deadline, "a worker did not end"
                time.sleep(0.02)
        return status

    def _look(self) -> None:
        """What is there is whole; of a log, each line but the last."""
        for name, content in _contents(self._work.outputs).items():
            whole = self._whole.get(name)
            if whole is None or name in self._changing or name.endswith("run.sqlite"):
                self.seen["beside"] += 1  # a record, or what only a complete run names otherwise
            elif name.endswith("best.json"):
                evomal.load_loss(name)  # the best loss so far
            elif name.endswith(LOG):
                self.seen["logs"] += whole != content
                begun, lines = content.splitlines()[:-1], whole.splitlines()
                in_order = lines[: len(begun)]  # workers end in any order
                is_beginning = begun == in_order if "in a write" in self._work.ways else {*begun} <= {*lines}
                assert is_beginning, f"{name}: is not the beginning of the whole log"
            else:
                is_old = name == "loss.json" and json.loads(content).get("name") == "ce"
                self.seen["old" if is_old else "new"] += 1
                is_whole = _meaning(name, content) == self._meaning[name]
                assert is_old or is_whole, f"{name}: is a part of what it should be"

    def _require_whole(self) -> None:
        found = _contents(self._work.outputs)
        assert found.keys() == self._whole.keys()
        for name in found.keys() - self._changing:
            is_same = _meaning(name, found[name]) == self._meaning[name]
            assert is_same, f"{name}: differs from that of an uninterrupted run"
        self.seen["completed"] += 1
        self._begin_anew()

    def _begin_anew(self) -> None:
        shutil.rmtree("made", ignore_errors=True)
        for name in ("made.py", "run/report.html", "loss.json"):
            Path(name).unlink(missing_ok=True)
        _write_inputs()


def _contents(place: str) -> dict[str, bytes]:
    """The files at a place; those whose name begins with a dot are locks, and left by those that were killed."""
    paths = sorted(Path(place).rglob("*")) if Path(place).is_dir() else [Path(place)]
    return {
        str(path): path.read_bytes()
        for path in paths
        if path.is_file() and not any(part.startswith(".") for part in path.parts)
    }


def _meaning(name: str, content: bytes) -> object:
    """What a file says, without times and without the order in which workers end."""
    if name.endswith("run.sqlite"):
        return dump_of(Path(name).parent)
    if name.endswith(("cell.json", "campaign.json")):
        return without_times(json.loads(content))
    if name.endswith(LOG):
        return sorted(content.splitlines())
    return content


def _die_in_a_write(size: int) -> None:
    """The kernel writes up to this size of any file, and then kills the process."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)


if __name__ == "__main__":
    torch.set_num_threads(1)  # OpenMP's threads would not survive a fork
    os.environ["EVOMAL_COMMIT"] = "tests"  # in the files of a campaign; somebody may be editing the source
    top_folder, all_seen = Path(sys.argv[1]).resolve(), {}
    for work_name in sys.argv[3:]:
        killer = Killer(top_folder, work_name)
        killer.kill(int(sys.argv[2]))
        all_seen[work_name] = killer.seen
    sys.stdout.write(json.dumps(all_seen, sort_keys=True))
