"""Ctrl-C in two steps: the first asks the work to stop where it can, the second stops it at once."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType

from evomal.runs import Generation
from evomal.runs.display import ProgressDisplay

SENTENCE = "stopping after this step; once more stops at once"


class Interruption:
    """Whether the person has asked for a stop."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._is_asked_for = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if a stop was asked for; to be called where the work can stop."""
        if self._is_asked_for:
            raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._is_asked_for:
            raise KeyboardInterrupt
        self._is_asked_for = True
        # A signal can come amid a write to the same file, where Python refuses another; the stop matters more.
        with contextlib.suppress(RuntimeError, OSError):
            self._say(SENTENCE)


@contextlib.contextmanager
def interruptible(say: Callable[[str], None]) -> Iterator[Interruption]:
    """Until the end of the block, Ctrl-C is said and remembered first, and raised only the second time.

    Signals belong to the main thread: in other threads, and in a process that ignores Ctrl-C, this does nothing.
    """
    interruption = Interruption(say)
    previous = signal.getsignal(signal.SIGINT)
    is_main = threading.current_thread() is threading.main_thread()
    if not is_main or previous is None or previous is signal.SIG_IGN:
        yield interruption
        return
    signal.signal(signal.SIGINT, interruption._on_signal)
    try:
        yield interruption
    finally:
        signal.signal(signal.SIGINT, previous)


class TerminalDisplay(ProgressDisplay):
    """Watches searches and trainings, one after the other; a context, in which Ctrl-C is asked for at each step."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = contextlib.ExitStack()
        self._interruption = self._stack.enter_context(interruptible(self.say))

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._stack.close()

    def on_steps(self, stage: str, steps: int) -> None:
        """Take in steps, and stop if a stop was asked for."""
        super().on_steps(stage, steps)
        self._interruption.check()

    def on_rivals(self, scores: Mapping[str, float]) -> None:
        """Take in the rivals, and stop if a stop was asked for."""
        super().on_rivals(scores)
        self._interruption.check()

    def on_generation(self, generation: Generation) -> None:
        """Take in a generation, and stop if a stop was asked for."""
        super().on_generation(generation)
        self._interruption.check()

    def announce(self, sentence: str) -> None:
        """Say which stage comes next, and stop if a stop was asked for."""
        super().announce(sentence)
        self._interruption.check()
