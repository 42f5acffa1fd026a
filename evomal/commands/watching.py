"""Searches and trainings watched from a terminal: shown while they run, stopped after the step of a Ctrl-C."""

import contextlib
from collections.abc import Mapping
from types import TracebackType

from evomal.commands.interruption import interruptible
from evomal.runs import Generation
from evomal.runs.watching import DisplayWatcher


class TerminalWatcher(DisplayWatcher):
    """Watches searches and trainings, one after the other; a context, in which Ctrl-C is asked for at each step."""

    def __init__(self) -> None:
        super().__init__()
        self._stack = contextlib.ExitStack()
        self._interruption = self._stack.enter_context(interruptible(self.say))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        super().__exit__(kind, error, trace)
        self._stack.close()

    def report(self, stage: str, steps: int) -> None:
        """Take in steps, and stop if a stop was asked for."""
        super().report(stage, steps)
        self._interruption.check()

    def rivals(self, scores: Mapping[str, float]) -> None:
        """Take in the rivals, and stop if a stop was asked for."""
        super().rivals(scores)
        self._interruption.check()

    def told(self, generation: Generation) -> None:
        """Take in a generation, and stop if a stop was asked for."""
        super().told(generation)
        self._interruption.check()

    def announce(self, sentence: str) -> None:
        """Say which stage comes next, and stop if a stop was asked for."""
        super().announce(sentence)
        self._interruption.check()
