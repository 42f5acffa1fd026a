"""Searches and trainings watched from a terminal: shown while they run, stopped after the step of a Ctrl-C."""

import contextlib
from collections.abc import Sequence
from types import TracebackType
from typing import Self

from evomal.commands.interruption import interruptible
from evomal.commands.search_display import SearchDisplay
from evomal.progress import StageBar
from evomal.runs import Generation


class TerminalWatcher:
    """Watches one search after the other; a context, in which Ctrl-C is asked for at each step."""

    def __init__(self) -> None:
        self._stack = contextlib.ExitStack()
        self._display: SearchDisplay | None = None
        self._bar = StageBar()
        self._interruption = self._stack.enter_context(interruptible(self.say))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._close(kind, error, trace)
        self._bar.close()
        self._stack.close()

    def begun(self, *, generations: int, steps: int, recorded: Sequence[Generation]) -> None:
        """Show a search; one that was shown before is over."""
        self._close()
        self._bar.close()
        # Standard error also for people: standard output is for the result alone.
        display = SearchDisplay(generations, steps_per_generation=steps, done=len(recorded))
        self._display = display.__enter__()
        for generation in recorded:
            display.told(generation)

    def report(self, stage: str, steps: int) -> None:
        """Take in steps, and stop if a stop was asked for."""
        if self._display is not None:
            self._display.report(stage, steps)
        else:
            self._bar.advance(steps)
        self._interruption.check()

    def expect(self, steps: int) -> None:
        """Show a bar for trainings to come; a search that was shown before is over."""
        self._close()
        self._bar.expect(steps)

    def told(self, generation: Generation) -> None:
        """Take in a generation, and stop if a stop was asked for."""
        if self._display is not None:
            self._display.told(generation)
        self._interruption.check()

    def announce(self, sentence: str) -> None:
        """Say what comes next, which is no search; stop if a stop was asked for."""
        self._close()
        self._bar.announce(sentence)
        self._interruption.check()

    def say(self, sentence: str) -> None:
        """Say something while a search may be shown."""
        if self._display is not None:
            self._display.say(sentence)
        else:
            self._bar.say(f"evomal: {sentence}")

    def _close(
        self,
        kind: type[BaseException] | None = None,
        error: BaseException | None = None,
        trace: TracebackType | None = None,
    ) -> None:
        if self._display is not None:
            self._display.__exit__(kind, error, trace)
            self._display = None
