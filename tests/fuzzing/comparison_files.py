"""Folders of comparisons: results and logs of trainings with valid checksums and odd content, and what reads them."""

import json
import random
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tests.fuzzing import json_edits
from tests.fuzzing.corpus import MODEL, settings_words
from tests.fuzzing.oracle import Box, Command
from tests.fuzzing.run_folders import NAMES, checksum
from tests.fuzzing.values import KINDS_OF_FILE, replace_file, text

_FEW = (*MODEL, "--seeds", "2", *settings_words(), "--out", "found")
_AGAIN = {
    "compared": ("compare", "diabetes", "--losses", "huber", *_FEW),
    "rates": ("compare", "diabetes", "--losses", "huber", "--rates", "0.1,0.01", *_FEW),
    "transfer": ("transfer", "--loss", "huber", "--to", "diabetes", *_FEW),
}
"""The commands that wrote the folders: given again, they read what is there and compute the rest."""
_PAGES = (
    ("report", "found"), ("report", "found", "--json"), ("report", "found", "--out", "page.html"),
    ("card", "found/loss.json"), ("card", "found/loss.json", "--json"), ("card", "found/loss.json", "--out", "made"),
)  # fmt: skip
_READERS = (*_PAGES, ("runs", "found"), ("analyse", "learning-rate", "found", "--out", "made"))
_LONG = (("|a\n|-\n", "a\n"), ("", "- a\n* a\n"), ("", "#\n"))
"""How a text begins and what it repeats: 4 MB of it take 30 to 70 s as Markdown."""


class ComparisonFiles:
    """A folder `found`, edited, and commands that read it or continue it."""

    def __init__(self, corpus: Path) -> None:
        self._corpus = corpus
        self._loss = sorted((corpus / "losses").iterdir())[3]
        self._documents = {
            (folder, path.name): _lines(path) if path.suffix == ".jsonl" else json.loads(path.read_bytes())
            for folder in _AGAIN
            for path in sorted((corpus / folder).iterdir())
            if path.suffix in (".json", ".jsonl") and path.name in NAMES
        }

    def draw(self, rng: random.Random) -> list[Any]:
        """Which folder, edits of its files, and the commands."""
        folder = rng.choice(sorted(_AGAIN))
        edits: list[Any] = [("folder", folder)]
        tables = [name for name in NAMES if name.endswith(".md")]
        if rng.random() < 0.05:
            begin, again = rng.choice(_LONG)
            long = begin + again * (rng.choice([99_000, 3_900_000]) // len(again))
            return [*edits, ("text", rng.choice(tables), long), ("command", rng.choice(_PAGES))]
        name = rng.choice([name for place, name in self._documents if place == folder])
        if rng.random() < 0.85:
            document = self._documents[folder, name]
            edits += [("json", name, json_edits.drawn(document, rng)) for _ in range(rng.choice([1, 1, 2, 4]))]
        if rng.random() < 0.1:
            edits.append(("bytes", name, json_edits.drawn_bytes(rng)))
        if rng.random() < 0.2:
            edits.append(("text", rng.choice(tables), text(rng) + text(rng)))
        if rng.random() < 0.2:
            edits.append(("file", rng.choice(NAMES), rng.choice(KINDS_OF_FILE)))
        words = _AGAIN[folder] if rng.random() < (0.6 if name.endswith(".jsonl") else 0.05) else rng.choice(_READERS)
        return [*edits, ("command", words)]

    def stage(self, edits: Sequence[Any], box: Box) -> list[Any]:
        """The folder with all edits, and a loss file in it, whose card shows the comparison."""
        source = next((edit[1] for edit in edits if edit[0] == "folder"), "compared")
        folder = box.here / "found"
        shutil.copytree(self._corpus / source, folder)
        shutil.copy(self._loss, folder / "loss.json")
        for name in {edit[1] for edit in edits if edit[0] == "json"}:
            if (source, name) in self._documents:
                changes = [edit[2] for edit in edits if edit[:2] == ("json", name)]
                content = json_edits.edited(self._documents[source, name], changes)
                text_of_it = _written_lines(content) if name.endswith(".jsonl") else json_edits.written(content)
                (folder / name).write_text(text_of_it)
        for kind, *named in edits:
            path = folder / str(named[0])
            if kind == "bytes" and path.is_file():
                path.write_bytes(json_edits.edited_bytes(path.read_bytes(), [named[1]]))
            elif kind == "text":
                path.write_bytes(named[1].encode(errors="surrogatepass"))
        for kind, *named in edits:
            if kind == "file":
                replace_file(folder / named[0], named[1], box.outside)
        return [Command(edit[1]) for edit in edits if edit[0] == "command"]


def _lines(path: Path) -> list[Any]:
    """The contents of a log, without their checksums."""
    return [json.loads(line)[1] for line in path.read_text().splitlines()]


def _written_lines(contents: Any) -> str:
    lines = contents if isinstance(contents, list) else [contents]
    return "".join(f"{_proved(content)}\n" for content in lines)


def _proved(content: Any) -> str:
    """A line with its checksum; of what is not JSON, that of nothing."""
    line = json_edits.written(content, canonical=True)
    try:
        return json_edits.written([checksum(json.loads(line)), json_edits.Raw(line)], canonical=True)
    except (ValueError, RecursionError):
        return json_edits.written([checksum(None), json_edits.Raw(line)], canonical=True)
