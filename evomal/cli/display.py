"""What a command does besides its work: Ctrl-C in two steps, progress on a terminal, and advice at the start."""

import contextlib
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from types import FrameType
from typing import Any

from evomal.cli.options import echo
from evomal.errors import StoppedError
from evomal.runs.callbacks import SearchCallback
from evomal.runs.display import ProgressDisplay
from evomal.runs.recorded_run import Run
from evomal.threads import processors

SENTENCE = "stopping after this step; press Ctrl-C again to stop at once"


class Interruption:
    """Whether the user has pressed Ctrl-C."""

    def __init__(self, say: Callable[[str], None]) -> None:
        self._say = say
        self._is_asked_for = False

    def check(self) -> None:
        """Raise KeyboardInterrupt if the user has pressed Ctrl-C; called wherever the work can stop."""
        if self._is_asked_for:
            raise KeyboardInterrupt

    def _on_signal(self, number: int, frame: FrameType | None) -> None:
        if self._is_asked_for:
            raise KeyboardInterrupt
        self._is_asked_for = True
        # Python refuses to write if the signal interrupted a write to the same file; stopping matters more.
        with contextlib.suppress(RuntimeError, OSError):
            self._say(SENTENCE)


@contextlib.contextmanager
def interruptible(say: Callable[[str], None]) -> Iterator[Interruption]:
    """Within the block, the first Ctrl-C is only announced and remembered; the second raises KeyboardInterrupt.

    Does nothing outside of the main thread, which alone can handle signals, or if the process ignores the signal.
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
    """Displays the progress of searches and trainings; as a context, it stops them at the next step after Ctrl-C."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = contextlib.ExitStack()
        self._interruption = self._stack.enter_context(interruptible(self.say))

    def __exit__(self, *_: object) -> None:
        super().__exit__()
        self._stack.close()

    def check(self) -> None:
        """Stop after Ctrl-C."""
        self._interruption.check()


@contextlib.contextmanager
def stoppable(remedy: Callable[[], str]) -> Iterator[TerminalDisplay]:
    """A context with a display; Ctrl-C, or a request to stop, becomes a sentence that ends with the remedy."""
    try:
        with TerminalDisplay() as listener:
            yield listener
    except (KeyboardInterrupt, StoppedError) as error:
        how = "stopped on request" if isinstance(error, StoppedError) else "interrupted"
        raise StoppedError(f"{how}{remedy()}") from None


class JobsAdvice(SearchCallback):
    """Says at the start of a search what would use more processors."""

    def on_start(self, run: Run) -> None:
        """Say it, unless the search is resumed."""
        if not run.candidates:
            advise_jobs(run.settings)


def advise_jobs(plan: Mapping[str, Any]) -> None:
    """Say that one of several processors is used, if that is so; the plan is that of an engine."""
    count = processors()
    jobs = min(count, plan["population"])
    if jobs > 1 and plan["device"] == "cpu" and plan["threads"] == 1:
        sentence = f"one of {count} processors is used; --jobs {jobs} uses {jobs}, with the same result"
        echo(f"evomal: {sentence}", err=True)
