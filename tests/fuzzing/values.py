"""Values that nobody expects: texts, numbers, JSON, and files that are not regular files.

Every text that tries something holds the word `forged`, by which the oracle finds it where it must not be.
"""

import os
import random
import socket
from collections.abc import Sequence
from pathlib import Path
from typing import Any

WAS_RUN = "forged-was-run"
"""The file that texts with code in them create when they are run."""
FORGED_LINE = "forged-line: all is well"
FORGED_ELEMENT = "<forged-element"
FORGED_LINK = "http://forged.example"

TEXTS = (
    "", " ", "forged", "forged" * 2000, "-", "--", "--forged", "@forged", "=", "forged=", ",", ":", "a:b=c,d=e",
    "\x1b[2J\x1b]0;forged\x07", "\x9b31mforged", "\x7fforged", "\u202eforged\u202c", "forged\u200b", "\ufeffforged",
    f"forged\n{FORGED_LINE}\n", f"forged\r\n{FORGED_LINE}", f"forged\u2028{FORGED_LINE}",
    f"<script>forged()</script>{FORGED_ELEMENT} onload='forged()'>", "</script></style>-->forged", "&lt;forged&gt;",
    f"[forged]({FORGED_LINK})", f"\\[forged]({FORGED_LINK})", f"![forged]({FORGED_LINK}/x.png)", f"<{FORGED_LINK}>",
    f"| forged | {FORGED_LINK} |", "`forged", "```\nforged", "# forged", "\\", "$\\frac{forged$", "$x^{forged$",
    "\\forgedcommand{", "$$", "_^{}", "%forged%s%n", "{forged}", "{{ forged }}", "{% forged %}",
    f"__import__('os').system('touch {WAS_RUN}')", f"$(touch {WAS_RUN})", f"; touch {WAS_RUN}",
    "../../../forged", "/proc/forged", "~forged", ".", "..", "/proc", "/dev/null", "C:\\forged", "file:///etc/passwd",
    "\ud800forged", "\udcffforged", "e" + "\u0301" * 500, "😀" * 50, "ﷺ" * 100, "١٢٣", "½", "İ", "ß",
    "nan", "NaN", "inf", "-inf", "1e999", "-0", "0", "1", "-1", "00", "1_000", "0x10", "1e-400", "true", "null",
    "None", "[]", "{}", "[[[[", str(2**31), str(2**63), str(-(2**63) - 1), str(2**64), "9" * 400, "9" * 5000,
    "abs(" * 500, "abs(f", "mul(y, f)", "add(f, " * 400 + "f" + ")" * 400, "log(abs(sub(f, y)))",
)  # fmt: skip
"""Texts without NUL, which no command line can hold."""

NUMBERS = (
    0, 1, -1, 2, 3, -100, 0.5, -0.0, 1e-320, 1e308, -1e308, 2.5, float("nan"), float("inf"), float("-inf"), 2**31,
    2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**30, 10**400,
)  # fmt: skip
"""None between 4 and 2³¹: as a count, a number is quick to work through, or too large to be accepted."""


class Raw(str):
    """JSON text that is written as it is."""

    __slots__ = ()

    def __repr__(self) -> str:
        return f"Raw({str(self)[:40]!r}{'…' * (len(self) > 40)})"


RAW = tuple(
    map(
        Raw,
        (
            "[" * 40 + "]" * 40, "[" * 900 + "]" * 900, "[" * 100_000, '{"a":' * 900 + "1" + "}" * 900, "1e999",
            "-1e999",
            "NaN", "-Infinity", "1" * 400, "1" * 5000, "-0", "1.0", "1E2", '{"forged": 1, "forged": 2}', '"\\ud800"',
            '"\\u0000"', "'forged'", "[1,]", "", "undefined", "[" + "0," * 20_000 + "0]",
        ),
    )
)  # fmt: skip


def text(rng: random.Random) -> str:
    """A text, or two of them together."""
    found = rng.choice(TEXTS)
    return found + rng.choice(TEXTS) if rng.random() < 0.1 else found


def json_value(rng: random.Random) -> Any:
    """Anything that JSON can hold, and some of what it cannot."""
    match rng.randrange(8):
        case 0 | 1 | 2:
            return text(rng) + "\0" * (rng.random() < 0.02)
        case 3 | 4:
            return rng.choice(NUMBERS)
        case 5:
            return rng.choice((None, True, False, [], {}, [None], {"": None}, [[]], [{}]))
        case 6:
            return rng.choice(RAW)
        case _:
            inner = [json_value(rng) for _ in range(rng.randrange(4))]
            return inner if rng.random() < 0.5 else {text(rng): value for value in inner}


KINDS_OF_FILE = ("link", "linked folder", "dangling link", "circular link", "fifo", "linked fifo", "device", "socket",
"folder",
                 "empty", "sparse", "text", "missing")  # fmt: skip


def replace_file(path: Path, kind: str, outside: Path) -> None:
    """Put something in place of a file; links point to the folder outside, which nobody may change."""
    if path.is_dir() and not path.is_symlink():
        return
    path.unlink(missing_ok=True)
    match kind:
        case "link":
            path.symlink_to(outside / "victim.txt")
        case "linked folder":
            path.symlink_to(outside)
        case "dangling link":
            path.symlink_to(outside / "forged")
        case "circular link":
            path.symlink_to(path)
        case "fifo":
            os.mkfifo(path)
        case "linked fifo":
            path.symlink_to(outside / "fifo")
        case "device":
            path.symlink_to("/dev/zero")
        case "socket":
            _make_socket(path)
        case "folder":
            path.mkdir()
        case "empty":
            path.touch()
        case "sparse":
            with path.open("wb") as file:
                file.truncate(2**40)
        case "text":
            path.write_text("forged\n" * 3)


def _make_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the path of a socket has at most 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def chosen(rng: random.Random, most: int, options: Sequence[Any]) -> list[Any]:
    """Some of the options, usually one or two, in their order."""
    count = min(len(options), rng.choice([1, 1, 1, 2, 2, 3, most]))
    return [options[place] for place in sorted(rng.sample(range(len(options)), count))]
