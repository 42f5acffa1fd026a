"""Settings as people write and read them: texts, files, descriptions of types, and sentences about wrong values."""

import tomllib
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import ValidationError

from evomal.checks import unknown_name
from evomal.errors import InputError
from evomal.files import read_foreign
from evomal.text import short_repr

_MAX_FILE_BYTES = 1024 * 1024
_RULES = {
    "bool_type": "true or false",
    "finite_number": "a finite number",
    "float_type": "a number",
    "greater_than": "more than {gt:.12g}",
    "greater_than_equal": "at least {ge:.12g}",
    "int_type": "a whole number",
    "less_than": "less than {lt:.12g}",
    "less_than_equal": "at most {le:.12g}",
    "missing": "a lowest and a highest height",
    "string_pattern_mismatch": "auto, cpu, cuda, cuda:0, mps",
    "string_too_short": "a string that is not empty",
    "string_type": "a string",
    "too_long": "a lowest and a highest height",
    "tuple_type": "a list",
}
"""The rule that a pydantic error is about, as the end of a sentence that begins with "must be"."""


def setting_text(value: Any) -> str:
    """The value of a setting as `with_texts` reads it."""
    if value is None or value == ():
        return "none"
    if isinstance(value, tuple):
        return ",".join(map(setting_text, value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def type_text(annotation: Any) -> str:
    """The type of a setting in words, such as `whole number or none`."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return type_text(arguments[0])
    if origin is Literal:
        return f"one of {', '.join(map(str, arguments))}"
    if origin in (Union, UnionType):
        return " or ".join("none" if argument is NoneType else type_text(argument) for argument in arguments)
    if origin is tuple:
        inner = type_text(arguments[0])
        return inner.replace("one of", "some of") if inner.startswith("one of") else f"list of {inner}s"
    names = {bool: "true or false", int: "whole number", float: "number", str: "text"}
    return names[annotation]


def read_text(text: str, annotation: Any) -> Any:
    """The text converted to the type; if that fails the text itself, and validation says what is wrong."""
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return read_text(text, arguments[0])
    if origin in (Union, UnionType):
        (given,) = (argument for argument in arguments if argument is not NoneType)
        return None if text.lower() == "none" else read_text(text, given)
    if origin is tuple:
        parts = [] if text.lower() in ("", "none") else text.split(",")
        return tuple(read_text(part.strip(), arguments[0]) for part in parts)
    if annotation is bool:
        return {"true": True, "false": False}.get(text.lower(), text)
    if annotation in (int, float):
        with suppress(ValueError):
            return annotation(text)
    return text


def document(path: Path) -> dict[str, Any]:
    """The content of a TOML file."""
    content = read_foreign(path, limit=_MAX_FILE_BYTES, follow_links=True)
    try:
        return tomllib.loads(content.decode())
    except UnicodeDecodeError as error:
        reason = f"is not a TOML text file: byte {error.start} is not UTF-8"
    except tomllib.TOMLDecodeError as error:
        reason = f"is not a TOML file: {str(error)[:1].lower()}{str(error)[1:]}"
    except RecursionError:
        reason = "cannot be read: its brackets are nested too deeply"
    except ValueError as error:  # a number too long for Python to convert
        reason = f"cannot be read: {error}"
    raise InputError(f"{path}: {reason}")


def input_error(error: ValidationError, known: Iterable[str]) -> InputError:
    """The first error that pydantic found, as one sentence: the key, the rule, the value received."""
    first = error.errors(include_url=False)[0]
    kind, context = first["type"], first.get("ctx", {})
    if kind == "value_error":
        return InputError(str(context["error"]))
    if not first["loc"]:  # a name with surrogates, as a file may spell it
        return InputError(f"the name of a setting must be text but got {short_repr(first['input'])}")
    key = str(first["loc"][0])
    if kind == "extra_forbidden":
        return unknown_name("setting", key, known)
    return InputError(f"{key} must be {rule_of(first)} but got {short_repr(first['input'])}")


def rule_of(first: Any) -> str:
    """One of pydantic's errors as the end of a sentence that begins with "must be"."""
    kind, context = first["type"], first.get("ctx", {})
    if kind == "literal_error":  # pydantic's "'a', 'b' or 'c'"
        names = context["expected"].replace(" or ", ", ").replace("'", "")
        return f"some of {names}" if len(first["loc"]) > 1 else f"one of {names}" if ", " in names else names
    if kind in _RULES:
        return _RULES[kind].format(**context)
    return str(first["msg"]).removeprefix("Input should be ")
