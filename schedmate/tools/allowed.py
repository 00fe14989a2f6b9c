"""What below a root may be shown: nothing that may hold a secret, nothing that git ignores.

`hidden.txt` names what may hold secrets. `IgnoreRules` matches git's patterns (gitignore(5), git's
wildmatch.c) in linear time: paths come from the lock of `schedmate.tools.locked`, and no pattern
may make matching slow.
"""

from __future__ import annotations

import os
import re
import string
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from schedmate.tools.locked import LockedRoot, RefusedError, read, shown

MAX_IGNORE_BYTES = 200_000
MAX_PATTERNS = 1_000

_CLASSES = {
    b"alnum": string.ascii_letters + string.digits,
    b"alpha": string.ascii_letters,
    b"blank": " \t",
    b"cntrl": "".join(map(chr, [*range(32), 127])),
    b"digit": string.digits,
    b"graph": "".join(map(chr, range(33, 127))),
    b"lower": string.ascii_lowercase,
    b"print": "".join(map(chr, range(32, 127))),
    b"punct": string.punctuation,
    b"space": " \t\n\r\v\f",
    b"upper": string.ascii_uppercase,
    b"xdigit": string.hexdigits,
}
_SLASH = b"/"
_NEVER = b"(?!)"
_NO_SEGMENT = re.compile(_NEVER)


class _BadPatternError(ValueError):
    """A pattern that git never matches: an unclosed bracket, a backslash at the end."""


@dataclass(frozen=True, slots=True)
class _Pattern:
    negated: bool
    directories_only: bool
    segments: tuple[re.Pattern[bytes] | None, ...]
    """One a path segment; None for `**`. A single one without `anchored` is for the name only."""
    anchored: bool

    def matches(self, path: Sequence[bytes], is_dir: bool) -> bool:
        if self.directories_only and not is_dir:
            return False
        if not self.anchored:
            first = self.segments[0]
            return first is None or first.fullmatch(path[-1]) is not None
        return _match_segments(self.segments, path)


class IgnoreRules:
    """The patterns of one ignore file, which lies in the directory that paths are relative to.

    Args:
        content: the file's bytes; what is past 200 kB or 1,000 patterns is not used.
        ignore_case: match without regard to ASCII case.
    """

    def __init__(self, content: bytes, *, ignore_case: bool = False) -> None:
        flags = re.DOTALL | (re.IGNORECASE if ignore_case else 0)
        lines = content[:MAX_IGNORE_BYTES].removeprefix(b"\xef\xbb\xbf").split(b"\n")
        patterns = (_parse_pattern(line.removesuffix(b"\r"), flags) for line in lines)
        rules = [pattern for pattern in patterns if pattern is not None][:MAX_PATTERNS]
        self._latest_first = rules[::-1]
        # Two expressions for what nearly all entries are, spoken of by no pattern, or left out by
        # a plain one that nothing takes back: a pattern matches only where its last segment does.
        self._any = _union([p.segments[-1] for p in rules], flags)
        negations = [index for index, pattern in enumerate(rules) if pattern.negated]
        after = rules[negations[-1] + 1 :] if negations else rules
        plain = [p for p in after if not p.anchored and not p.directories_only]
        self._plain = _union([p.segments[0] for p in plain], flags)

    def decide(self, path: Sequence[bytes], is_dir: bool) -> bool | None:
        """Whether the path is ignored (True), taken back in (False) or not spoken of (None).

        `path` is one entry's segments below the ignore file's directory; that none of its parents
        is ignored is for the caller to know, since git never looks inside an ignored directory.
        """
        if self._any.fullmatch(path[-1]) is None:
            return None
        if self._plain.fullmatch(path[-1]) is not None:
            return True
        for pattern in self._latest_first:
            if pattern.matches(path, is_dir):
                return not pattern.negated
        return None


def _union(segments: Sequence[re.Pattern[bytes] | None], flags: int) -> re.Pattern[bytes]:
    expressions = (b".*" if segment is None else segment.pattern for segment in segments)
    return re.compile(b"|".join(b"(?:" + e + b")" for e in expressions) or _NEVER, flags)


def _match_segments(pattern: Sequence[re.Pattern[bytes] | None], path: Sequence[bytes]) -> bool:
    """Match segments; `**` takes as little as it can, which is always right for the last one."""
    at = star = 0
    after = -1  # index in the pattern after the last `**` seen; -1 before the first
    index = 0
    while at < len(path):
        segment = pattern[index] if index < len(pattern) else _NO_SEGMENT
        if segment is None:
            if index == len(pattern) - 1:
                return True  # a `**` at the end: everything inside
            after, star = index + 1, at
            index += 1
        elif segment.fullmatch(path[at]):
            index += 1
            at += 1
        elif after >= 0:
            star += 1
            index, at = after, star
        else:
            return False
    return index == len(pattern)


def _parse_pattern(line: bytes, flags: int) -> _Pattern | None:
    if line.startswith(b"#"):
        return None
    line = _without_trailing_spaces(line)
    negated = line.startswith(b"!")
    line = line[negated:]
    directories_only = line.endswith(_SLASH)
    line = line[: len(line) - directories_only]
    if not line:
        return None
    anchored = _SLASH in line
    try:
        tokens = list(_pattern_tokens(line[1:] if line.startswith(_SLASH) else line))
    except _BadPatternError:
        return None
    segments = tuple(_compile_segments(segment, flags) for segment in _split_segments(tokens))
    return _Pattern(negated, directories_only, segments, anchored)


def _without_trailing_spaces(line: bytes) -> bytes:
    end = position = 0
    while position < len(line):
        step = 2 if line[position : position + 1] == b"\\" else 1
        if line[position : position + 1] != b" ":
            end = position + step
        position += step
    return line[:end]


def _pattern_tokens(line: bytes) -> Iterator[bytes]:
    """Parts of a pattern: `/`, `*` (a run of stars stays one token), else a regular expression."""
    position = 0
    while position < len(line):
        byte = line[position : position + 1]
        if byte == b"*":
            end = position
            while line[end : end + 1] == b"*":
                end += 1
            yield line[position:end]
            position = end
        elif byte == b"[":
            expression, position = _bracket(line, position + 1)
            yield expression
        elif byte == b"\\":
            if position + 1 == len(line):
                raise _BadPatternError
            escaped = line[position + 1 : position + 2]
            yield escaped if escaped == _SLASH else re.escape(escaped)
            position += 2
        else:
            yield byte if byte == _SLASH else b"[^/]" if byte == b"?" else re.escape(byte)
            position += 1


def _bracket(line: bytes, position: int) -> tuple[bytes, int]:
    """A character class that starts after `[`: its expression, and where the rest begins."""
    members: set[int] = set()
    negated = line[position : position + 1] in (b"!", b"^")
    position += negated
    previous: int | None = None
    first = True
    while first or line[position : position + 1] != b"]":
        first = False
        char = line[position : position + 1]
        following = line[position + 1 : position + 2]
        if not char:
            raise _BadPatternError
        if char == b"-" and previous is not None and following not in (b"", b"]"):
            position += 1
            if following == b"\\":
                position += 1
            end = _byte(line, position)
            members.update(range(previous, end + 1))
            previous = None
        elif char == b"[" and following == b":":
            close = line.find(b"]", position + 2)
            if close < 0:
                raise _BadPatternError
            if line[close - 1 : close] == b":" and close - 1 >= position + 2:
                name = line[position + 2 : close - 1]
                if name not in _CLASSES:
                    raise _BadPatternError
                members.update(map(ord, _CLASSES[name]))
                position, previous = close, None
            else:  # no `:]` follows: the bracket stands for itself
                members.add(ord("["))
                previous = ord("[")
        else:
            position += char == b"\\"
            previous = _byte(line, position)
            members.add(previous)
        position += 1
    if negated:
        members = set(range(256)) - members
    members.discard(ord("/"))
    inside = b"".join(b"\\x%02x" % member for member in sorted(members))
    return (b"[" + inside + b"]" if inside else _NEVER), position + 1


def _byte(line: bytes, position: int) -> int:
    if position >= len(line):
        raise _BadPatternError
    return line[position]


def _split_segments(tokens: Sequence[bytes]) -> Iterator[list[bytes]]:
    segment: list[bytes] = []
    for token in tokens:
        if token == _SLASH:
            yield segment
            segment = []
        else:
            segment.append(token)
    yield segment


def _compile_segments(segment: Sequence[bytes], flags: int) -> re.Pattern[bytes] | None:
    if len(segment) == 1 and segment[0].startswith(b"**"):
        return None
    parts: list[list[bytes]] = [[]]
    for token in segment:
        if token.startswith(b"*"):
            parts.append([])
        else:
            parts[-1].append(token)
    head, *rest = (b"".join(part) for part in parts)
    if not rest:
        return re.compile(head, flags)
    # After each star the text up to the next one is found as early as possible and kept there.
    middle = b"".join(b"(?>[^/]*?" + part + b")" for part in rest[:-1] if part)
    return re.compile(head + middle + b"[^/]*" + rest[-1], flags)


# What below a root may be shown: nothing that may hold a secret, nothing that git ignores.


Rules = tuple[tuple[int, IgnoreRules], ...]
"""The ignore files that hold for a directory: how deep each lies, and its patterns."""


@cache
def _hidden_rules() -> IgnoreRules:
    return IgnoreRules(Path(__file__).with_name("hidden.txt").read_bytes(), ignore_case=True)


def is_hidden(path: Sequence[str], is_dir: bool) -> bool:
    """Whether `hidden.txt` names this entry; that its parents are not named is not looked at."""
    return _hidden_rules().decide(_raw_names(path), is_dir) is True


def is_ignored(rules: Rules, path: Sequence[str], is_dir: bool) -> bool:
    """Whether git's patterns leave this entry out; the deepest file that speaks of it decides."""
    raw = _raw_names(path)
    for level, patterns in reversed(rules):
        decision = patterns.decide(raw[level:], is_dir)
        if decision is not None:
            return decision
    return False


def rules_in(root: LockedRoot, parts: Sequence[str]) -> Rules:
    """The patterns of one directory's own .gitignore; () without a readable one."""
    try:
        with root.file((*parts, ".gitignore")) as (handle, _):
            return ((len(parts), IgnoreRules(read(handle, MAX_IGNORE_BYTES))),)
    except RefusedError:
        return ()


def require_allowed(
    root: LockedRoot, parts: Sequence[str], *, is_dir: bool, ignored_too: bool = False
) -> Rules:
    """Raise `RefusedError` if the entry or a directory above it is hidden or ignored.

    Gives the patterns of the directories above it. Whether there is such an entry plays no part,
    so a refusal does not tell. With `ignored_too`, what git ignores is allowed.
    """
    rules: Rules = ()
    for level, _ in enumerate(parts):
        path, directory = parts[: level + 1], is_dir or level < len(parts) - 1
        if is_hidden(path, directory):
            raise RefusedError(f"{shown(parts)} is never shown: it may hold secrets")
        rules += rules_in(root, parts[:level])
        if not ignored_too and is_ignored(rules, path, directory):
            raise RefusedError(f"{shown(parts)} is not shown: .gitignore leaves it out")
    return rules


def _raw_names(path: Sequence[str]) -> tuple[bytes, ...]:
    return tuple(map(os.fsencode, path))
