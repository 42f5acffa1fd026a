"""The errors that evomal raises."""

from evomal.text import printable

_LONGEST = 2_000  # characters


class EvomalError(Exception):
    """Any failure evomal reports on purpose: one sentence, fit to be shown as it is.

    The sentence may quote a file or a user's text. It is made printable here, in one place: one line, without
    characters that a terminal would obey. A long sentence loses its middle, as the rule is usually at its end.
    """

    def __init__(self, sentence: object = "") -> None:
        text = printable(str(sentence))
        super().__init__(text if len(text) <= _LONGEST else f"{text[: _LONGEST // 2]}…{text[1 - _LONGEST // 2 :]}")


class InputError(EvomalError, ValueError):
    """The caller's input breaks a rule; the sentence names the place, the rule and the value received.

    The command line turns it into exit code 2.
    """


class UserCodeError(EvomalError):
    """The user's own code raised: the sentence has its error, file and line, and `__cause__` is the error itself."""


class DeviceError(EvomalError):
    """A GPU failed, or an operation on it did: the process cannot use the GPU any more, another process may."""


class StoppedError(EvomalError):
    """A person stopped the work; the sentence says how to resume it. Exit code 130."""
