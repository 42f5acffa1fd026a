"""What comparisons in a folder came to, from the files they left there."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from evomal.verdict.folder import LOG_NAME

_TITLES = {
    "comparison": "Comparison",
    "transfer": "Transfer",
    "learning-rates": "Comparison at several learning rates",
}
_LONGEST = 4_000_000  # bytes
_LONGEST_SENTENCE = 1_000


@dataclass(frozen=True)
class Sentence:
    """A verdict in words; kind: gain, no gain, learning rate, worse, undecided or diverged."""

    kind: str
    text: str


@dataclass(frozen=True)
class RecordedVerdict:
    """What one comparison came to."""

    title: str
    sentences: tuple[Sentence, ...]
    """Those of the JSON file; none where it is not there or not evomal's."""
    text: str
    """Markdown, without the lines that the sentences repeat."""


@dataclass(frozen=True)
class RecordedVerdicts:
    """All that there is in a folder, and what is to be said of the rest."""

    verdicts: tuple[RecordedVerdict, ...]
    notes: tuple[str, ...]
    is_begun: bool
    """Whether there is a comparison, though perhaps without a verdict yet."""


def recorded_verdicts(folder: Path) -> RecordedVerdicts:
    """The verdicts of `comparison`, `transfer` and `learning-rates` in the folder itself."""
    found, notes = [], []
    for name, title in _TITLES.items():
        try:
            data, text = _content(folder / f"{name}.json"), _content(folder / f"{name}.md")
            if data is None and text is None:
                continue
            sentences = () if data is None else tuple(_sentences(json.loads(data)))
        except (OSError, ValueError, RecursionError) as error:
            notes.append(f"{name}: cannot be read: {getattr(error, 'strerror', None) or error}")
            continue
        found.append(RecordedVerdict(title, sentences, _without(text or "", sentences)))
    begun = (folder / LOG_NAME).is_file()
    if begun and not found and not notes:
        notes.append("a comparison was begun here but has not come to its end: the same command goes on with it")
    return RecordedVerdicts(tuple(found), tuple(notes), begun or bool(found) or bool(notes))


def _content(path: Path) -> str | None:
    if not path.is_file():
        return None
    with path.open("rb") as file:
        content = file.read(_LONGEST + 1)
    if len(content) > _LONGEST:
        raise ValueError(f"{path.name} must have at most {_LONGEST} bytes but has more")
    return content.decode()


def _sentences(content: Any) -> Iterator[Sentence]:
    """In the order of the file; a comparison at each of several learning rates has one object for each."""
    if not isinstance(content, Mapping):
        return
    if not isinstance(content.get("verdicts"), Mapping):
        for rate, inner in content.items():
            if isinstance(inner, Mapping) and isinstance(inner.get("verdicts"), Mapping):
                for sentence in _sentences(inner):
                    yield Sentence(sentence.kind, f"{rate}: {sentence.text}")
        return
    for verdict in content["verdicts"].values():
        if isinstance(verdict, Mapping) and all(isinstance(verdict.get(key), str) for key in ("kind", "sentence")):
            yield Sentence(verdict["kind"][:_LONGEST_SENTENCE], verdict["sentence"][:_LONGEST_SENTENCE])


def _without(markdown: str, sentences: tuple[Sentence, ...]) -> str:
    said = {f"- {sentence.text}" for sentence in sentences}
    return "\n".join(line for line in markdown.splitlines() if line.rstrip() not in said)
