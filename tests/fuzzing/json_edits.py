"""Edits of JSON documents and of bytes: drawn at random, applied one after the other, each of them dropped at will."""

import copy
import json
import random
from collections.abc import Sequence
from typing import Any

from tests.fuzzing.values import Raw, json_value, text

Path = tuple[str | int, ...]
Edit = tuple[Any, ...]
_SNIPPETS = (
    b"NaN", b"-1e999", b"null", b"[[", b'"', b"\\u0000", b"\x00", b"\xff\xfe", b"99999999999999999999", b"abs(", b"}",
    b",",
    b"\xef\xbb\xbf", b"\x1b[2J", b"\\ud800", b"e", b"-", b"\n", b"1" * 5000, b"[" * 5000,
)  # fmt: skip


class Pairs(list):  # type: ignore[type-arg]
    """An object in which keys may occur twice."""


def drawn(document: Any, rng: random.Random) -> Edit:
    """An edit of a document; a path is drawn from all of them, those near the top more often."""
    places = list(_paths(document))
    place = min(rng.choice(places), rng.choice(places), key=len) if rng.random() < 0.5 else rng.choice(places)
    match rng.randrange(10):
        case 0:
            return ("delete", place)
        case 1:
            return ("add", place, text(rng), json_value(rng))
        case 2:
            return ("wrap", place, rng.choice(["list", "object"]))
        case 3:
            return ("swap", place, rng.choice(places))
        case 4:
            return ("repeat", place, rng.choice([2, 2, 3, 1000]))
        case 5:
            return ("rename", place, text(rng))
        case _:
            return ("replace", place, json_value(rng))


def edited(document: Any, edits: Sequence[Edit]) -> Any:
    """The document after the edits; one whose place is gone does nothing."""
    top = {"": copy.deepcopy(document)}
    for kind, place, *values in edits:
        parent, key = _parent(top, place)
        if parent is None:
            continue
        here = parent[key]
        if kind == "replace":
            parent[key] = values[0]
        elif kind == "delete" and place:
            del parent[key]
        elif kind == "add" and isinstance(here, dict):
            here[values[0]] = values[1]
        elif kind == "add" and isinstance(here, list) and not isinstance(here, Pairs):
            here.append(values[1])
        elif kind == "wrap":
            parent[key] = [here] if values[0] == "list" else {"forged": here}
        elif kind == "repeat" and isinstance(here, list) and not isinstance(here, Pairs):
            parent[key] = here * values[0]
        elif kind == "repeat" and isinstance(here, dict):
            parent[key] = Pairs([*here.items(), *list(here.items())[:1]])
        elif kind == "rename" and isinstance(parent, dict) and place:
            parent[values[0]] = parent.pop(key)
        elif kind == "swap":
            other, other_key = _parent(top, values[0])
            if other is not None and place[: len(values[0])] != values[0] and values[0][: len(place)] != place:
                parent[key], other[other_key] = other[other_key], here
    return top[""]


def written(value: Any, *, canonical: bool = False) -> str:
    """The value as JSON text, raw text included; canonical: as evomal writes what it computes checksums of."""
    comma, colon = (",", ":") if canonical else (", ", ": ")
    if isinstance(value, Raw):
        return str(value)
    if isinstance(value, dict | Pairs):
        pairs = value if isinstance(value, Pairs) else sorted(value.items()) if canonical else value.items()
        texts = (f"{json.dumps(key)}{colon}{written(inner, canonical=canonical)}" for key, inner in pairs)
        return f"{{{comma.join(texts)}}}"
    if isinstance(value, list | tuple):
        return f"[{comma.join(written(inner, canonical=canonical) for inner in value)}]"
    if isinstance(value, int) and abs(value) > 10**300:
        return "9" * 400  # Python refuses to write longer ones
    return json.dumps(value)


def drawn_bytes(rng: random.Random) -> Edit:
    """An edit of bytes."""
    place = rng.random()
    match rng.randrange(6):
        case 0:
            return ("cut off", place)
        case 1:
            return ("flip", place, rng.randrange(8))
        case 2:
            return ("remove", place, rng.randint(1, 30))
        case 3 | 4:
            return ("insert", place, rng.choice(_SNIPPETS))
        case _:
            return ("repeat", place, rng.randint(1, 60), rng.randint(1, 20))


def edited_bytes(content: bytes, edits: Sequence[Edit]) -> bytes:
    """The bytes after the edits."""
    found = bytearray(content)
    for kind, share, *values in edits:
        place = int(share * len(found))
        if kind == "cut off":
            del found[place:]
        elif kind == "flip" and found:
            found[place] ^= 1 << values[0]
        elif kind == "remove":
            del found[place : place + values[0]]
        elif kind == "insert":
            found[place:place] = values[0]
        elif kind == "repeat":
            found[place:place] = found[place : place + values[0]] * values[1]
    return bytes(found)


def _paths(value: Any, place: Path = ()) -> Any:
    yield place
    inner = value.items() if isinstance(value, dict) else enumerate(value[:50]) if isinstance(value, list) else ()
    for key, part in inner:
        yield from _paths(part, (*place, key))


def _parent(top: dict[str, Any], place: Path) -> tuple[Any, Any]:
    parent: Any = top
    keys: Path = ("", *place)
    for key in keys[:-1]:
        if not _has(parent, key):
            return None, None
        parent = parent[key]
    return (parent, keys[-1]) if _has(parent, keys[-1]) else (None, None)


def _has(parent: Any, key: str | int) -> bool:
    if isinstance(parent, dict):
        return key in parent
    return isinstance(parent, list) and not isinstance(parent, Pairs) and isinstance(key, int) and key < len(parent)
