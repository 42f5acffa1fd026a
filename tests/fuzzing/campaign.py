"""Many cases: drawn, judged, and where one fails reduced to the edits it needs; in several processes at once."""

import contextlib
import dataclasses
import itertools
import multiprocessing
import multiprocessing.connection
import os
import random
import resource
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Protocol

import torch

from tests.fuzzing.oracle import Box, Fault, Watch, judge

SEARCHED = 30.0
"""Seconds in which a case with a given text is looked for."""
_MEMORY = 4 * 2**30
"""Bytes that a process may take beyond what it has after its imports."""


class Target(Protocol):
    """A kind of input."""

    def draw(self, rng: random.Random) -> list[Any]:
        """The edits of a case."""

    def stage(self, edits: Sequence[Any], box: Box) -> list[Any]:
        """Put the edited input into the box, and return the calls to make."""


@dataclasses.dataclass
class Finding:
    """A fault, and the smallest case found that shows it."""

    case: str
    fault: Fault
    edits: list[Any]
    call: str
    times: int = 1

    def __str__(self) -> str:
        edits = "".join(f"    edit  {_shortened(repr(edit), 300)}\n" for edit in self.edits)
        again = f"    again: python -m tests.fuzzing --again {self.case}\n"
        details = "".join(f"      {line}\n" for line in _shortened(self.fault.details, 3000).splitlines())
        seen = f" ({self.times} times)" * (self.times > 1)
        return f"{self.case}: {self.fault.kind}: {self.fault.place}{seen}\n    {self.call}\n{edits}{again}{details}"


def run_case(target: Target, name: str, watch: Watch) -> list[Finding]:
    """The findings of the case of that name, `target:seed:number`."""
    edits = target.draw(random.Random(name))
    found = []
    for fault, call in _faults(target, edits, watch):
        left = _reduced(target, edits, fault, watch)
        found.append(Finding(name, fault, left, call))
    return found


def _faults(target: Target, edits: Sequence[Any], watch: Watch) -> list[tuple[Fault, str]]:
    with tempfile.TemporaryDirectory(prefix="fuzz", ignore_cleanup_errors=True) as folder:
        box = Box(Path(os.path.realpath(folder))).build()
        with contextlib.chdir(box.here):
            calls = target.stage(edits, box)
        found: dict[Fault, str] = {}
        for call in calls:
            for fault in judge(call, box, watch):
                place = fault.place.replace(folder, "BOX")
                found.setdefault(dataclasses.replace(fault, place=place), str(call).replace(folder, "BOX"))
        return list(found.items())


def _reduced(target: Target, edits: list[Any], fault: Fault, watch: Watch) -> list[Any]:
    """The edits without those that the fault does not need; of a hang, which takes long to repeat, all of them."""
    if fault.kind == "hang":
        return edits
    place = len(edits) - 1
    while place >= 0 and len(edits) > 1:
        fewer = [*edits[:place], *edits[place + 1 :]]
        if any(other == fault for other, _ in _faults(target, fewer, watch)):
            edits = fewer
        place -= 1
    return edits


def prepare_process() -> Watch:
    """Limit what the process may do, and begin to watch it."""
    torch.set_num_threads(1)  # threads would not survive a fork
    # On a new machine matplotlib makes its folders and asks the system for fonts when it is first imported.
    import_module("matplotlib.font_manager")
    sys.dont_write_bytecode = True
    for name in ("http_proxy", "https_proxy", "HTTP_PROXY", "HTTPS_PROXY"):
        os.environ[name] = "http://127.0.0.1:9"  # nothing is downloaded, and the refusal comes at once
    pages = int(Path("/proc/self/statm").read_text().split()[0]) if Path("/proc/self/statm").exists() else 0
    if pages:
        limit = pages * resource.getpagesize() + _MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    return Watch()


def run_campaign(
    target: Target,
    name: str,
    count: int,
    seed: int,
    jobs: int,
    say: Callable[[str], None],
    seconds: float = float("inf"),
    only: str = "",
) -> tuple[int, list[Finding]]:
    """Run the cases until all are done or the time is over; how many were run, and the findings, each once.

    With `only`, just cases among whose edits the text occurs are counted and run.
    """
    context = multiprocessing.get_context("fork")
    numbers = itertools.islice(_matching(target, name, seed, only, say), count)
    deadline, done = time.monotonic() + seconds, 0
    findings: dict[Fault, Finding] = {}
    workers: dict[Any, Any] = {}
    at: dict[Any, str] = {}

    def begin() -> None:
        ours, theirs = context.Pipe()
        worker = context.Process(target=_work, args=(target, theirs, list(workers)), daemon=True)
        worker.start()
        theirs.close()
        workers[ours] = worker
        give(ours)

    def give(pipe: Any) -> None:
        number = next(numbers, None) if time.monotonic() < deadline else None
        at.pop(pipe, None)
        if number is not None:
            at[pipe] = _case(name, seed, number)
        with contextlib.suppress(BrokenPipeError):
            pipe.send(at.get(pipe))

    def note(finding: Finding) -> None:
        known = findings.setdefault(finding.fault, finding)
        if known is finding:
            say(str(finding))
        else:
            known.times += 1

    for _ in range(min(jobs, count)):
        begin()
    while workers:
        for pipe in multiprocessing.connection.wait(list(workers)):
            try:
                for finding in pipe.recv():
                    note(finding)
                done += 1
                give(pipe)
            except EOFError:  # the process ended: as told, or in the middle of a case
                worker = workers.pop(pipe)
                worker.join()
                if case := at.pop(pipe, None):
                    fault = Fault("died", f"exit code {worker.exitcode}", "killed, out of memory, or stuck in C code")
                    note(Finding(case, fault, target.draw(random.Random(case)), "the process ended"))
                    begin()
    return done, list(findings.values())


def _matching(target: Target, name: str, seed: int, only: str, say: Callable[[str], None]) -> Iterator[int]:
    """The numbers of the cases with the text among their edits, until none is drawn for a while."""
    deadline = time.monotonic() + SEARCHED
    for number in itertools.count():
        if not only or only in repr(target.draw(random.Random(_case(name, seed, number)))):
            yield number
            deadline = time.monotonic() + SEARCHED
        elif time.monotonic() > deadline:
            say(f"{name}: {only!r} is not among the edits of cases up to {number:,}, after {SEARCHED:g} s\n")
            return


def _case(name: str, seed: int, number: int) -> str:
    return f"{name}:{seed}:{number}"


def _work(target: Target, pipe: Any, others: Sequence[Any]) -> None:
    for other in others:
        other.close()
    watch = prepare_process()
    while (case := pipe.recv()) is not None:
        pipe.send(run_case(target, case, watch))


def _shortened(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"


@contextlib.contextmanager
def corpus_folder() -> Iterator[Path]:
    """A folder for the valid files that cases edit."""
    folder = Path(tempfile.mkdtemp(prefix="fuzz-corpus"))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def summary(counts: Counter[str], findings: Sequence[Finding], seconds: float) -> str:
    """One line on all of it."""
    ran = ", ".join(f"{count:,} {name}" for name, count in counts.items())
    return f"{ran}: {len(findings)} findings in {seconds:.0f} s\n"
