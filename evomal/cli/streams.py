"""Standard output and error that replace what their encoding lacks, and warnings as one sentence."""

import codecs
import io
import os
import sys
import unicodedata
import warnings
from typing import Any

import evomal
from evomal.text import printable

_HANDLER = "evomal.ascii"
_IN_ASCII = {
    "±": "+/-", "…": "...", "—": "-", "–": "-", "−": "-", "·": "*", "×": "x", "≤": "<=", "≥": ">=", "≈": "~",
    "→": "->", "↦": "->", "↑": "^", "↓": "v", "∞": "inf", "‘": "'", "’": "'", "“": '"', "”": '"', "⟨": "<", "⟩": ">",
    "∂": "d", "∇": "grad ", "½": "1/2",
}  # fmt: skip


def show_warnings_as_sentences() -> None:
    """Print evomal's own warnings as its errors are printed, without the line of code that gave them."""
    usual, own = warnings.formatwarning, os.path.dirname(evomal.__file__)

    def formatted(message: Warning | str, category: type[Warning], filename: str, *rest: Any) -> str:
        if filename.startswith(own + os.sep):
            return f"evomal: warning: {printable(str(message))}\n"
        return usual(message, category, filename, *rest)

    warnings.formatwarning = formatted  # type: ignore[assignment]  # the rest are lineno and line
    # torch warns at the first matrix product of a backward pass on CUDA, but does what is needed itself.
    warnings.filterwarnings("ignore", message="Attempting to run cuBLAS")


def replace_unencodable() -> None:
    """Let both streams replace characters that their encoding lacks; Python would raise an error."""
    codecs.register_error(_HANDLER, _replaced)
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if not isinstance(stream, io.TextIOWrapper):
            continue  # a program that embeds this one has replaced it
        if codecs.lookup(stream.encoding).name == "ascii":
            setattr(sys, name, _AsciiStream(stream))
        else:
            stream.reconfigure(errors=_HANDLER)


class _AsciiStream(io.TextIOWrapper):
    """A stream that writes ASCII but claims UTF-8: Typer would replace an ASCII stream with one that writes UTF-8."""

    def __init__(self, stream: io.TextIOWrapper) -> None:
        stream.flush()
        # With a buffer of its own: two streams would each close a shared one.
        buffer = io.BufferedWriter(io.FileIO(stream.fileno(), "w", closefd=False))
        super().__init__(buffer, encoding="utf-8", line_buffering=stream.line_buffering, write_through=True)

    def write(self, text: str) -> int:
        """Write the text in ASCII."""
        return super().write(text.encode("ascii", _HANDLER).decode("ascii"))


def _replaced(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    return "".join(map(_in_ascii, error.object[error.start : error.end])), error.end


def _in_ascii(character: str) -> str:
    """The character in ASCII: from the table, lines for boxes, letters without accents, Greek letters by name."""
    if character in _IN_ASCII:
        return _IN_ASCII[character]
    name = unicodedata.name(character, "")
    if name.startswith("BOX DRAWINGS"):
        is_across, is_down = "HORIZONTAL" in name, "VERTICAL" in name
        return "-" if is_across and not is_down else "|" if is_down and not is_across else "+"
    if name.startswith("GREEK"):
        return name.split(" LETTER ")[-1].split()[0].lower()
    return unicodedata.normalize("NFKD", character).encode("ascii", "ignore").decode() or "?"
