"""Settings files: TOML with every setting at every odd value, and TOML that is none."""

import json
import math
import random
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from evomal.settings import SearchSettings
from tests.fuzzing import json_edits
from tests.fuzzing.corpus import MODEL, TINY
from tests.fuzzing.oracle import Box, Command, Function
from tests.fuzzing.values import KINDS_OF_FILE, NUMBERS, replace_file, text

_SENSIBLE = (1, 2, 0.5, True, "auto", "cpu", "sgd", "1h", [2, 4], ["symbolic"], ["mse"], "stacked", "softplus")
_RAW = (
    "1979-05-27T07:32:00Z", "0xff", "1_000", "[[[[[[1]]]]]]", "{ forged = { forged = 1 } }", "'''forged\nforged'''",
    "inf", "-nan", "[" * 5000, "1" * 5000, "+1", "01", '"\\ud800"', "[1, 'forged']",
)  # fmt: skip


class SettingsFiles:
    """A file `settings.toml`, read by `SearchSettings` and, now and then, by a search that is only estimated."""

    def __init__(self, corpus: Path) -> None:
        self._keys = [*SearchSettings.model_fields, "preset"]

    def draw(self, rng: random.Random) -> list[Any]:
        """Lines of the file, and edits of its bytes."""
        edits: list[Any] = [("line", rng.choice(self._keys), _value(rng)) for _ in range(rng.choice([1, 1, 2, 5]))]
        if rng.random() < 0.1:
            edits.append(("line", text(rng), _value(rng)))
        if rng.random() < 0.05:
            edits.append(
                ("raw", rng.choice(["[forged]", "[[forged]]", "[settings]", "# \x1b[2J", "forged", "\x00", text(rng)]))
            )
        if rng.random() < 0.15:
            edits.append(("bytes", json_edits.drawn_bytes(rng)))
        if rng.random() < 0.03:
            edits.append(("kind", rng.choice(KINDS_OF_FILE)))
        if rng.random() < 0.1:
            edits.append(("command", rng.choice([("--json",), ()])))
        return edits

    def stage(self, edits: Sequence[Any], box: Box) -> list[Any]:
        """The file as `settings.toml`."""
        lines = [f"{key} = {value}" for key, value in TINY.items() if key not in {edit[1] for edit in edits}]
        lines += [f"{_key(edit[1])} = {_written(edit[2])}" for edit in edits if edit[0] == "line"]
        lines += [edit[1] for edit in edits if edit[0] == "raw"]
        content = "\n".join(lines).encode(errors="surrogatepass")
        path = box.here / "settings.toml"
        path.write_bytes(json_edits.edited_bytes(content, [edit[1] for edit in edits if edit[0] == "bytes"]))
        for edit in edits:
            if edit[0] == "kind":
                replace_file(path, edit[1], box.outside)
        words = ("search", "diabetes", *MODEL, "--config", "settings.toml", "--dry-run")
        commands = [Command((*words, *edit[1])) for edit in edits if edit[0] == "command"]
        return [Function(lambda: SearchSettings.from_file(path), "SearchSettings.from_file"), *commands]


def _value(rng: random.Random) -> Any:
    match rng.randrange(5):
        case 0:
            return rng.choice(_SENSIBLE)
        case 1:
            return rng.choice(NUMBERS)
        case 2:
            return text(rng)
        case 3:
            return json_edits.Raw(rng.choice(_RAW))
        case _:
            return [
                rng.choice([rng.choice(_SENSIBLE), text(rng), rng.choice(NUMBERS)]) for _ in range(rng.randrange(4))
            ]


def _key(name: str) -> str:
    return name if name.isidentifier() and name.isascii() else json.dumps(name)


def _written(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, list):
        return f"[{', '.join(map(_written, value))}]"
    return json_edits.written(value)
