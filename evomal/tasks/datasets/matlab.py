"""Numeric arrays of MATLAB version 5 files ("MAT-File Format", The MathWorks, chapter 1).

scipy's reader is not used, because a damaged file can crash the interpreter there (seen with scipy 1.17.1); this one
reads plain little-endian arrays only, and refuses everything else with a sentence.
"""

import math
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from evomal.errors import InputError
from evomal.tasks.datasets.reading import opened_safely

_HEADER = 128  # bytes: text, then the version, then "IM" where the least significant byte comes first
_MATRIX, _COMPRESSED = 14, 15
_INT8, _INT32, _UINT32 = 1, 5, 6
_COMPLEX = 0x0800
# How numbers are stored; MATLAB shrinks a double array of whole numbers to bytes.
_STORED = {1: "i1", 2: "u1", 3: "i2", 4: "u2", 5: "i4", 6: "u4", 7: "f4", 9: "f8", 12: "i8", 13: "u8"}
# What the array is, whatever the storage.
_CLASSES = {6: "f8", 7: "f4", 8: "i1", 9: "u1", 10: "i2", 11: "u2", 12: "i4", 13: "u4", 14: "i8", 15: "u8"}


class _DamageError(Exception):
    """What is wrong, still without the file's name."""


def read_arrays(path: Path, limit: int) -> dict[str, NDArray[Any]]:
    """The real numeric arrays by name; no array may take more than `limit` bytes, however far it unpacks."""
    with opened_safely(path):
        content = memoryview(path.read_bytes())
    try:
        if len(content) < _HEADER or bytes(content[124:_HEADER]) != b"\x00\x01IM":
            raise _DamageError("has no little-endian header of that version")
        arrays: dict[str, NDArray[Any]] = {}
        position = _HEADER
        while position < len(content):
            kind, data, position = _element(content, position)
            if kind == _COMPRESSED:
                kind, data, _ = _element(memoryview(_unpacked(data, limit)), 0)
            if kind == _MATRIX:
                arrays |= _array(data)
    except _DamageError as damage:
        raise InputError(f"{path}: cannot be read as a MATLAB version 5 file: {damage}") from None
    return arrays


def _element(content: memoryview, start: int) -> tuple[int, memoryview, int]:
    """Type, data and the position after the element, which is padded to eight bytes unless it is compressed."""
    if len(content) - start < 8:
        raise _DamageError("ends in the middle of a tag")
    kind, size = struct.unpack_from("<II", content, start)
    if kind >> 16:  # up to four bytes of data share the tag
        kind, size = kind & 0xFFFF, kind >> 16
        if size > 4:
            raise _DamageError(f"a short element must have at most 4 bytes, but has {size}")
        return kind, content[start + 4 : start + 4 + size], start + 8
    data = content[start + 8 : start + 8 + size]
    if len(data) != size:
        raise _DamageError(f"an element of {size} bytes has only {len(data)}")
    return kind, data, start + 8 + size + (0 if kind == _COMPRESSED else -size % 8)


def _unpacked(data: memoryview, limit: int) -> bytes:
    unpacking = zlib.decompressobj()
    overhead = 1024  # tags, flags, dimensions, name
    try:
        content = unpacking.decompress(data, limit + overhead)
    except zlib.error as error:
        raise _DamageError(str(error)) from None
    if not unpacking.eof:
        short = not unpacking.unconsumed_tail
        raise _DamageError("a compressed array is cut short" if short else f"an array takes more than {limit} bytes")
    return content


def _array(content: memoryview) -> dict[str, NDArray[Any]]:
    """The one array of a matrix element, or none where it is a text, a structure, sparse or complex."""
    kinds: list[int] = []
    parts: list[memoryview] = []
    position = 0
    while position < len(content) and len(parts) < 4:
        kind, data, position = _element(content, position)
        kinds.append(kind)
        parts.append(data)
    if kinds[:3] != [_UINT32, _INT32, _INT8] or len(parts[0]) != 8 or len(parts[1]) % 4:
        raise _DamageError("an array does not begin with its flags, dimensions and name")
    flags = struct.unpack_from("<I", parts[0])[0]
    array_class = flags & 0xFF
    if array_class not in _CLASSES or flags & _COMPLEX:
        return {}
    if len(parts) < 4 or kinds[3] not in _STORED:
        raise _DamageError("a numeric array has no numbers")
    shape = struct.unpack(f"<{len(parts[1]) // 4}i", parts[1])
    stored = np.dtype("<" + _STORED[kinds[3]])
    if min(shape, default=-1) < 0 or math.prod(shape) * stored.itemsize != len(parts[3]):
        raise _DamageError(f"an array of shape {shape} does not fit into {len(parts[3])} bytes")
    numbers = np.frombuffer(parts[3], stored).reshape(shape, order="F")
    with np.errstate(invalid="ignore"):  # what does not fit its class is the reader's to judge
        return {bytes(parts[2]).decode("latin-1"): numbers.astype(np.dtype(_CLASSES[array_class]), copy=False)}
