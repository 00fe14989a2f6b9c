"""Mutations of byte strings that keep most of their structure: what a sample says, said oddly."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

# What parsers, numbers, names and encodings have tripped over.
ODD: tuple[bytes, ...] = (
    b"",
    b"0",
    b"-0",
    b"-1",
    b"1e308",
    b"-1e308",
    b"1e400",
    b"1e-320",
    b"nan",
    b"NaN",
    b"inf",
    b"-Infinity",
    b".inf",
    b"1_000",
    b"9223372036854775808",
    b"9" * 25,
    b"9" * 400,
    b"9" * 5_000,
    b"0x" + b"f" * 5_000,
    b"1e5000",
    b"0." + b"3" * 5_000,
    b"99999-12-31T00:00:00",
    "²".encode(),
    "٣".encode(),
    b"\x00",
    b"\xff\xfe",
    b"\xed\xa0\x80",  # a lone surrogate
    b"\\ud800",
    b"\\x00",
    "\u202e".encode(),
    "\u2028".encode(),
    "\U000e0041".encode(),
    b"\x1b]0;x\x07",
    b"\r",
    b"\n",
    b"\t",
    b"a" * 300,
    b"a" * 5_000,
    b"a/" * 2_500,
    b"../" * 100,
    b"[" * 3_000,
    b"{" * 3_000,
    b"(" * 3_000,
    b"[[" * 500,
    b"{a: " * 500,
    b'{"a":' * 500,
    b"- " * 500,
    b"$(" * 300,
    b"${x}",
    b"${x:-" * 200,
    b"%s%n",
    b"{0.__class__}",
    b"'",
    b'"',
    b"`",
    b"#",
    b"&a *a",
    b"!!python/object:os.system x",
    b"<<",
    b"None",
    b"null",
    b"true",
    b"=",
    b":",
    b",",
    b"|",
    b";",
)
_NUMBER = re.compile(rb"\d[\d.eE+_-]*")
_WORD = re.compile(rb"[^\s\"'=:,;|\[\](){}]+")
_LONGEST = 60_000


def mutate(rng: random.Random, samples: Sequence[bytes], longest: int = _LONGEST) -> bytes:
    """A sample with a few changes."""
    data = rng.choice(samples)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 5))):
        data = _change(rng, data, samples)
    return data[:longest]


def _change(rng: random.Random, data: bytes, samples: Sequence[bytes]) -> bytes:
    kind = rng.randrange(10)
    if kind <= 2:
        return _replace_match(rng, data, _NUMBER)
    if kind <= 4:
        return _replace_match(rng, data, _WORD)
    start, end = sorted((rng.randint(0, len(data)), rng.randint(0, len(data))))
    if kind == 5:
        return data[:start] + rng.choice(ODD) + data[start:]
    if kind == 6:
        end = min(end, start + 80)
        return data[:start] + data[end:]
    if kind == 7:  # some of it again, or very often
        end = min(end, start + 200)
        return data[:start] + data[start:end] * rng.choice((2, 2, 50)) + data[end:]
    if kind == 8:
        other = rng.choice(samples)
        return data[:start] + other[rng.randint(0, len(other)) :]
    changed = bytearray(data)
    for _ in range(rng.choice((1, 4))):
        if changed:
            changed[rng.randrange(len(changed))] = rng.randrange(256)
    return bytes(changed)


def _replace_match(rng: random.Random, data: bytes, pattern: re.Pattern[bytes]) -> bytes:
    found = list(pattern.finditer(data))
    if not found:
        return data + rng.choice(ODD)
    one = rng.choice(found)
    return data[: one.start()] + rng.choice(ODD) + data[one.end() :]
