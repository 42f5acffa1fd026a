"""Workers of a Ray cluster as their driver sees them: who is ready, who is busy with what, who was lost."""

import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from evomal.errors import EvomalError
from evomal.methods import Failure
from evomal.runs.canonical import versions
from evomal.runs.executors.backlog import Backlog, Piece
from evomal.runs.executors.shipping import folders_of_users_code, packing
from evomal.runs.executors.worker import TOO_SMALL, Ability, Answer, Worker, differing, reason_of
from evomal.text import one_line

_TICK = 0.2  # seconds between two looks at what a person wants
_GRACE = 10.0  # seconds the first worker waits for the others before work begins
_SILENCE = 20.0  # seconds without any worker after which that is told
_PATIENCE = 600.0  # seconds without any worker after which there will be none

Say = Callable[[str], None]
Tick = Callable[[], None]
"""Called a few times a second while workers are waited for; what it raises ends that, and the workers with it."""


@dataclass(eq=False)
class Hand:
    """One worker."""

    actor: Any
    call: Any = None
    """What it was asked for, if anything; a reference of Ray's."""
    lesson: int = 0
    """Number of the ability it has been told to have."""
    is_ready: bool = False
    """Whether it has it."""
    was_missed: bool = False
    """Whether the others have begun without it, and will not wait again."""
    piece: Piece | None = None
    since: float = 0.0
    """When it was asked."""
    place: tuple[str, str] | None = None
    """Its device and machine."""
    paces: list[tuple[int, float]] = field(default_factory=list)
    """Rows and seconds of its pieces in this call."""

    @property
    def pace(self) -> float | None:
        """Rows a second."""
        seconds = sum(taken for _, taken in self.paces)
        return sum(rows for rows, _ in self.paces) / max(seconds, 1e-6) if self.paces else None


class Crew:
    """So many workers, replaced when they are lost; all have the same ability, one after the other."""

    def __init__(
        self, size: int, *, needs: dict[str, float], timeout: float | None, retries: int, patience: float = _PATIENCE
    ) -> None:
        import ray

        self._ray = ray
        self._timeout, self._retries, self._patience = timeout, retries, patience
        self._say: Say | None = None
        self._tick: Tick | None = None
        self._threads = int(needs["num_cpus"])
        self._kind = ray.remote(Worker).options(
            **needs, max_restarts=0, max_task_retries=0, scheduling_strategy="SPREAD"
        )  # fmt: skip
        self.lesson = 0
        """Number of the ability that was asked for last."""
        self._taught: tuple[bytes, str, Any] = (b"", "", None)
        self._shared: tuple[list[Any], str, Any] | None = None
        self._about: dict[str, Any] | None = None
        self._stillborn = 0
        self._told = ""
        self._told_once: set[str] = set()
        self._seen_ready = time.monotonic()
        self.size = size
        """How many workers there are to be."""
        self._hands = [self._hired() for _ in range(size)]

    @contextlib.contextmanager
    def telling(self, say: Say | None, tick: Tick | None = None) -> Iterator[None]:
        """Until the end of the block, what becomes of workers is told there; a tick replaces that of a block around."""
        before = self._say, self._tick
        self._say, self._tick, self._told = say, tick or self._tick, ""
        try:
            yield
        finally:
            self._say, self._tick = before

    def tell_once(self, sentence: str) -> None:
        """Tell this, unless it was told before."""
        if sentence not in self._told_once:
            self._told_once.add(sentence)
            self._tell(sentence)

    def close(self) -> None:
        """Let all workers go, whatever they are doing."""
        for hand in self._hands:
            self._kill(hand)
        self._hands = []

    def teach(self, make: Callable[[Any], Ability], shared: Sequence[Any], name: str) -> dict[str, Any]:
        """Have every worker build this ability from what they share; what it says about itself.

        What is shared goes to each machine once, and stays there for the next ability that needs the same.
        """
        with packing() as packed:
            if self._shared is None or not _same(self._shared[0], shared):
                content = packed(shared[0] if len(shared) == 1 else list(shared), name)
                self._shared, self._taught = None, (b"", "", None)  # the old data go first
                self._shared = (list(shared), f"{name} {self.lesson}", self._stored(content))
            taught = (packed(make, name), *self._shared[1:])
        self._stillborn = 0
        if self._about is None or taught[:2] != self._taught[:2]:
            self.lesson += 1
            self._about, self._taught = None, taught
        with self._closed_on_errors():
            self._begin_waiting()
            self._wait_for_workers()
        assert self._about is not None
        return self._about

    def spread(
        self, count: int, *, unit: int, order: Callable[[list[int]], Any], name: str,
        done: Callable[[list[int], list[Any]], None] | None = None,
    ) -> list[Any]:  # fmt: skip
        """A result for each of so many rows, or a Failure; `order` makes of some rows what a worker is asked for.

        `done` is called with rows and their results as they come in; what it raises ends the work, and the workers
        with it.
        """
        results: dict[int, Any] = {}
        backlog = Backlog(count, unit, self._retries)
        for hand in self._hands:
            hand.paces.clear()

        def take_in(rows: list[int], found: list[Any]) -> None:
            results.update(zip(rows, found, strict=True))
            if done is not None:
                done(rows, found)

        with self._closed_on_errors(), packing() as packed:
            self._begin_waiting()
            while len(results) < count:
                self._hand_out(backlog, lambda rows: packed(order(rows), name))
                for hand in self._answered():
                    self._collect(hand, backlog, take_in)
                for hand in self._overdue():
                    self._lose(hand, f"it took longer than {self._timeout:g} s", backlog, take_in)
                self._look_around()
        self._tell_who_is_there()
        return [results[row] for row in range(count)]

    def _begin_waiting(self) -> None:
        self._hands = self._hands or [self._hired() for _ in range(self.size)]  # after an error there are none
        self._seen_ready = time.monotonic()

    def _wait_for_workers(self) -> None:
        """Until all are ready, or one is and the others let it wait."""
        since = time.monotonic()
        while not (ready := self._ready()) or any(hand not in ready and not hand.was_missed for hand in self._hands):
            self._begin_lessons()
            for hand in self._answered():
                self._collect(hand, None, lambda *_: None)
            self._look_around()
            if not ready:
                since = time.monotonic()
            elif time.monotonic() - since > _GRACE:
                break
        ready = self._ready()
        for hand in self._hands:
            hand.was_missed = hand not in ready
        self._tell_who_is_there()

    def _ready(self) -> list[Hand]:
        return [hand for hand in self._hands if hand.is_ready and hand.lesson == self.lesson]

    def _look_around(self) -> None:
        """Ask what a person wants, and whether there is anybody to wait for."""
        if self._tick is not None:
            self._tick()
        now = time.monotonic()
        if self._ready():
            self._seen_ready = now
        elif now - self._seen_ready > self._patience:
            raise EvomalError(f"no worker of the Ray cluster was ready within {self._patience:g} s")
        elif now - self._seen_ready > min(_SILENCE, self._patience / 2):
            self._tell_if_new(f"0 of {self.size} workers: waiting until there is room for one, and it has begun")
        for hand in list(self._hands):
            if hand.call is not None and hand.piece is None and now - hand.since > self._patience:
                self._replace(hand)
                self._tell(f"a worker was given up: it had not begun within {self._patience:g} s")

    def _begin_lessons(self) -> None:
        for hand in self._hands:
            if hand.call is None and hand.lesson != self.lesson:
                hand.lesson, hand.is_ready, hand.since = self.lesson, False, time.monotonic()
                hand.call = hand.actor.begin.remote(*self._taught)

    def _hand_out(self, backlog: Backlog, order: Callable[[list[int]], bytes]) -> None:
        self._begin_lessons()
        ready = self._ready()
        if not backlog or all(hand.call is not None for hand in ready):
            return
        known = [hand.pace for hand in ready if hand.pace is not None]
        usual = sum(known) / len(known) if known else 1.0
        paces = [usual if hand.pace is None else hand.pace for hand in ready]
        for hand, pace in zip(ready, paces, strict=True):
            if hand.call is None and backlog:
                hand.piece = backlog.take(pace / sum(paces))
                hand.call = hand.actor.work.remote(order(hand.piece.rows))
                hand.since = time.monotonic()

    def _answered(self) -> list[Hand]:
        """Those who have an answer, after a moment at most."""
        calls = {hand.call: hand for hand in self._hands if hand.call is not None}
        if not calls:
            time.sleep(_TICK)
            return []
        waiting = list(calls)
        self._ray.wait(waiting, num_returns=1, timeout=_TICK)
        answered, _ = self._ray.wait(waiting, num_returns=len(waiting), timeout=0)
        return [calls[call] for call in answered]

    def _overdue(self) -> list[Hand]:
        if self._timeout is None:
            return []
        now = time.monotonic()
        busy = [(hand, hand.piece) for hand in self._hands if hand.piece is not None]
        return [hand for hand, piece in busy if now - hand.since > self._timeout * len(piece.rows)]

    def _collect(self, hand: Hand, backlog: Backlog | None, take_in: Callable[[list[int], list[Any]], None]) -> None:
        try:
            answer: Answer = self._ray.get(hand.call)
        except self._ray.exceptions.RayTaskError as error:
            if self._is_outdated(hand):
                hand.call = None
                return
            if hand.piece is not None:
                raise  # a defect, which must be seen
            # Ray puts a traceback of the worker before it.
            last = one_line(Exception(str(error).strip().splitlines()[-1]))
            raise EvomalError(f"a worker could not begin: {last}") from None
        except self._ray.exceptions.RayError as error:
            self._lose(hand, reason_of(error), backlog, take_in)
            return
        if self._is_outdated(hand):
            hand.call = None
            return
        if answer.is_out_of_memory:
            self._lose(hand, TOO_SMALL, backlog, take_in)
            return
        value, piece = answer.opened(), hand.piece
        hand.call, hand.piece = None, None
        if piece is None:
            self._welcome(hand, value)
        else:
            hand.paces.append((len(piece.rows), time.monotonic() - hand.since))
            take_in(piece.rows, value)

    def _is_outdated(self, hand: Hand) -> bool:
        """Whether its answer is about a lesson that was replaced meanwhile."""
        return hand.piece is None and hand.lesson != self.lesson

    def _welcome(self, hand: Hand, value: dict[str, Any]) -> None:
        """A worker has built what it was told to; it must be what the others have built."""
        hand.is_ready, hand.was_missed, hand.place = True, False, (value["device"], value["machine"])
        if self._about is None:
            self._about = value["about"]
        difference = differing(value["versions"], versions()) or differing(value["about"], self._about)
        if difference is not None:
            raise EvomalError(f"a worker on {value['machine']} has {difference}, so its numbers could differ")

    def _lose(
        self, hand: Hand, reason: str, backlog: Backlog | None, take_in: Callable[[list[int], list[Any]], None]
    ) -> None:
        """Replace a worker; what it worked on is tried again or given up."""
        piece, place = hand.piece, hand.place
        self._replace(hand)
        machine = "" if place is None else f" on {place[1]}"
        if piece is None or backlog is None:
            self._stillborn += 1
            self._tell(f"a worker{machine} was lost{' before it began' if place is None else ''}: {reason}")
            if self._stillborn > self._retries + len(self._hands):
                raise EvomalError(f"workers are lost before they can begin: {reason}")
            return
        self._stillborn = 0
        noun = "candidate" if len(piece.rows) == 1 else "candidates"
        self._tell(f"a worker{machine} was lost with {len(piece.rows)} {noun}: {reason}")
        given_up: dict[int, Failure] = backlog.lose(piece, reason)
        take_in(list(given_up), list(given_up.values()))

    def _replace(self, hand: Hand) -> None:
        self._kill(hand)
        successor = self._hired()
        successor.was_missed = hand.was_missed
        self._hands[self._hands.index(hand)] = successor

    def _hired(self) -> Hand:
        return Hand(self._kind.remote(self._threads, folders_of_users_code()))

    def _kill(self, hand: Hand) -> None:
        with contextlib.suppress(Exception):  # it may be gone, or the cluster
            self._ray.kill(hand.actor, no_restart=True)

    def _tell_who_is_there(self) -> None:
        places = [hand.place for hand in self._ready() if hand.place is not None]
        devices = ", ".join(f"{count} × {device}" for device, count in Counter(device for device, _ in places).items())
        machines = sorted({machine for _, machine in places})
        where = machines[0] if len(machines) == 1 else f"{len(machines)} machines"
        sentence = f"{len(places)} of {len(self._hands)} workers: {devices} on {where}"
        if places:
            self._tell_if_new(sentence)

    def _tell_if_new(self, sentence: str) -> None:
        if sentence != self._told:
            self._told = sentence
            self._tell(sentence)

    def _tell(self, sentence: str) -> None:
        if self._say is not None:
            self._say(sentence)

    def _stored(self, content: bytes) -> Any:
        import numpy as np

        return self._ray.put(np.frombuffer(content, np.uint8))  # which workers read where it lies, without a copy

    @contextlib.contextmanager
    def _closed_on_errors(self) -> Iterator[None]:
        try:
            yield
        except BaseException:
            self.close()
            raise


def _same(ones: Sequence[Any], others: Sequence[Any]) -> bool:
    return len(ones) == len(others) and all(one is other for one, other in zip(ones, others, strict=True))
