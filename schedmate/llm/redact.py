"""Prepares text for a model: removes secrets from it, and fences what nobody vouches for.

The patterns of secrets are in `secrets.yaml`. The lines of a `Fence` cannot be imitated by the
text between them.
"""

from __future__ import annotations

import base64
import hashlib
import re
import secrets
import threading
import unicodedata
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

import re2

from schedmate.base.data import load
from schedmate.base.terminal import visible

PLACEHOLDER = re.compile(r"\[secret:[a-z_]{1,40}:[0-9]{1,9}\]")
"""The placeholder of a secret."""
LONGEST_NAME = 80
"""Characters before a value in which its name is looked for."""
SHORTEST_KNOWN, MOST_KNOWN = 8, 200
"""Secrets of so many characters at least, and so many of them, are looked for everywhere."""
_NEWLINE = re.compile(r"\r\n|\r|\n")
_RUN = re.compile(r"[A-Z]?[a-z]+|[A-Z]+|[0-9]+")
_CODE = re.compile(
    r"[A-Za-z_]\w*(?:\.[A-Za-z_]\w*)+|(?i:(?=\w*(?:pass|secret|key|token|auth))\w++)"
)


class Redactor:
    """Replaces secrets by placeholders such as `[secret:aws_key:1]`, the same one for the same.

    The rules are in `secrets.yaml`. The number of lines stays as it is: a placeholder for a secret
    of several lines is followed by its line ends. Text that only looks like a placeholder is
    itself replaced, so nobody can ask for a secret by its number. One redactor serves one job;
    shared between jobs, one could name another's secrets. Safe to use from threads.

    Args:
        emails: take out mail addresses too.
    """

    def __init__(self, *, emails: bool = False) -> None:
        self._emails = emails
        self._placeholders: dict[tuple[str, str], str] = {}
        self._secrets: dict[str, str] = {}
        self._known: dict[str, str] = {}
        self._numbers: Counter[str] = Counter()
        self._lock = threading.Lock()

    def redact(self, text: str) -> str:
        """The text without its secrets; redacting twice changes nothing more."""
        with self._lock:
            return self._redacted(PLACEHOLDER.sub(self._forged, text))

    def _redacted(self, text: str) -> str:
        for index in _with_words(text):
            rule = _rules()[index]
            if rule.spans_lines:
                text = rule.pattern.sub(self._replacer(rule), text)
        # Few lines hold any word of a rule, and only those are searched.
        lines = self._without_columns(text.splitlines(keepends=True))
        for start, end in _windows(lines):
            window = "".join(lines[start:end])
            for index in _with_words(window):
                rule = _rules()[index]
                if rule.window:
                    window = rule.pattern.sub(self._replacer(rule), window)
            lines[start:end] = window.splitlines(keepends=True)
        tried: dict[int, list[int]] = {}
        for number, line in enumerate(lines):
            for index in _with_words(line):
                tried.setdefault(index, []).append(number)
        for index in sorted(tried):
            rule = _rules()[index]
            if rule.spans_lines or rule.window or (rule.when == "asked" and not self._emails):
                continue
            for number in tried[index]:
                if rule.short and len(lines[number]) > LONGEST_READ:
                    continue
                lines[number] = rule.pattern.sub(self._replacer(rule), lines[number])
        return self._without_known("".join(lines))

    def _without_columns(self, lines: list[str]) -> list[str]:
        """The lines of tables without the cells of columns whose header names a secret."""
        column: tuple[str, int, int] | None = None
        for number, line in enumerate(lines):
            if column is not None:
                between, count, at = column
                cells = line.rstrip("\r\n").split(between)
                if len(cells) != count:
                    column = None
                elif not _RULER.fullmatch(cell := cells[at].strip(" \"'")) and _is_cell(cell):
                    end = line[len(line.rstrip("\r\n")) :]
                    cells[at] = cells[at].replace(cell, self._placeholder("password", cell))
                    lines[number] = between.join(cells) + end
            column = _secret_column(line) or column
        return lines

    def _without_known(self, text: str) -> str:
        """The text without the secrets that were found elsewhere by their names."""
        for secret, placeholder in self._known.items():
            if secret in text:
                whole = rf"(?<![A-Za-z0-9]){re.escape(secret)}(?![A-Za-z0-9])"
                text = re.sub(whole, placeholder, text)
        return text

    def _restored(self, text: str) -> str:
        """The text with the secrets in their places again: a rule may take one found by another."""
        parts: list[str] = []
        position = 0
        for match in PLACEHOLDER.finditer(text):
            secret = self._secrets.get(match[0])
            if secret is not None:
                parts += (text[position : match.start()], secret)
                position = match.end()
                ends = "".join(_NEWLINE.findall(secret))
                if text.startswith(ends, position):
                    position += len(ends)
        return "".join(parts) + text[position:]

    def _is_telling(self, secret: str) -> bool:
        """Whether a secret is looked for wherever else it may stand."""
        long = len(secret) >= SHORTEST_KNOWN and secret.isprintable()
        return long and _is_mixed(secret) and len(self._known) < MOST_KNOWN

    def _forged(self, match: re.Match[str]) -> str:
        return match[0] if match[0] in self._secrets else self._placeholder("text", match[0])

    def _replacer(self, rule: _Rule) -> Callable[[re.Match[str]], str]:
        def replace(match: re.Match[str]) -> str:
            group = "secret" if rule.pattern.groupindex.get("secret") and match["secret"] else 0
            secret = match[group]
            if not rule.takes(match, secret):
                return match[0]
            start, end = (index - match.start() for index in match.span(group))
            return match[0][:start] + self._placeholder(rule.name, secret) + match[0][end:]

        return replace

    def _placeholder(self, name: str, secret: str) -> str:
        secret = self._restored(secret)
        placeholder = self._placeholders.get((name, secret))
        if placeholder is None:
            self._numbers[name] += 1
            placeholder = f"[secret:{name}:{self._numbers[name]}]"
            self._placeholders[name, secret] = placeholder
            self._secrets[placeholder] = secret
            # a word may be a password, and yet stand elsewhere as a word
            if name != "text" and self._is_telling(secret):
                self._known[secret] = placeholder
        return placeholder + "".join(_NEWLINE.findall(secret))


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    pattern: re.Pattern[str]
    when: str | None
    spans_lines: bool
    window: bool
    short: bool
    harmless: re.Pattern[str]
    near: re2.Pattern[str] | None
    unless: re2.Pattern[str] | None

    def takes(self, match: re.Match[str], secret: str) -> bool:
        """Whether a match is a secret."""
        if self.harmless.fullmatch(secret):
            return False
        before = match.string[max(0, match.start() - LONGEST_NAME) : match.start()]
        if self.unless is not None and self.unless.search(before[-40:]):
            return False
        if self.near is not None and not self.near.search(before):
            return False
        if self.when == "literal":
            # An upper-case name is an environment variable, whose value is always literal.
            return match[0][:1].isupper() or not _CODE.fullmatch(secret)
        accepts = _ACCEPTS.get(self.when or "")
        return accepts is None or accepts(secret)


def _is_random(value: str) -> bool:
    """Whether letters and digits alternate as in no word: runs of one kind are short."""
    runs = _RUN.findall(value)
    return len(runs) > 4 and sum(map(len, runs)) / len(runs) < 3


def _is_drawn(value: str) -> bool:
    """Whether digits are among letters in three places, as in hexadecimal or base36."""
    runs = _RUN.findall(value)
    return sum(map(str.isdigit, runs)) > 2 and sum(map(len, runs)) / len(runs) < 5


def _is_mixed(value: str) -> bool:
    """Whether there are letters and digits, but not as in code or a number: `a.b2`, `1e-3`."""
    letters = any(one.isalpha() for one in value)
    return (
        letters
        and any(map(str.isdigit, value))
        and not (_CODE.fullmatch(value) or _is_number(value))
    )


def _is_number(value: str) -> bool:
    try:
        float(value)
    except ValueError:
        return False
    return True


def _decoded(value: str) -> bytes:
    try:
        return base64.b64decode(value[: len(value) // 4 * 4], validate=True)
    except ValueError:
        return b""


def _is_login(value: str) -> bool:
    """Whether it is base64 of `user:password`."""
    text = _decoded(value + "=" * (-len(value) % 4))
    return b":" in text and text.isascii()


def _is_entropic(value: str) -> bool:
    """Whether one of its parts, at least 16 characters long, is drawn from letters of both cases
    and digits: names of models and runs are made of short parts and words."""
    return any(
        len(part) >= 16
        and _is_random(part)
        and part.upper() != part
        and part.lower() != part
        and sum(map(str.isdigit, part)) > 1
        for part in re.split(r"[-_/.]", value)
    )


_ACCEPTS: dict[str, Callable[[str], bool]] = {
    "random": _is_random,
    "drawn": _is_drawn,
    "mixed": _is_mixed,
    "entropic": _is_entropic,
    "login": _is_login,
    "key": lambda value: b"PRIVATE KEY" in _decoded(value)[:100],
}


_HEADER = re.compile(r"[\w .$#-]{0,60}")
_SECRET_COLUMN = re.compile(
    r"(?i)(?:[\w .-]{0,40}[_ .-])?(?:password|passwd|passphrase|pwd|pw|passwort|secret(?:[_ ]key)?"
    r"|(?:api|access|private)[_ ]?key|token)"
)
_RULER = re.compile(r":?-*:?")


def _secret_column(line: str) -> tuple[str, int, int] | None:
    """For the header of a table with a column of secrets: what stands between cells, how many there
    are, and which is that column."""
    if len(line) > 2_000 or not _words_of_columns().search(line):
        return None
    for between in "|\t;,":
        cells = [cell.strip(" \r\n\"'") for cell in line.split(between)]
        if len(cells) > 1 and all(map(_HEADER.fullmatch, cells)):
            for at, cell in enumerate(cells):
                if _SECRET_COLUMN.fullmatch(cell):
                    return between, len(cells), at
    return None


@cache
def _words_of_columns() -> re2.Pattern[str]:
    return re2.compile("(?i)passw|passphrase|pwd|pw|secret|key|token")


def _is_cell(value: str) -> bool:
    """Whether a cell of a column of secrets may be one; words are the tokens of a corpus."""
    return 4 <= len(value) <= 512 and _is_mixed(value) and not _rules()[0].harmless.fullmatch(value)


_TELLING = re2.compile(
    r"(?i)passw|passphrase|pwd|\bpw\b|secret|[_-]key\b|[a-z]key\b|apikey|\btoken|_token\b|credential"
)
LONGEST_READ = 4_000
"""Characters of a line that a person may have written."""
LINES_AFTER = 8
"""Lines behind a telling name that may hold its value."""


def _windows(lines: list[str]) -> list[tuple[int, int]]:
    """The lines around those with a telling name, each of them once: where they begin and end."""
    found: list[tuple[int, int]] = []
    left = 0  # lines of the window that are still to come
    for number, line in enumerate(lines):
        if len(line) > LONGEST_READ:
            left = 0
            continue
        telling = _TELLING.search(line) is not None
        if telling and not left:
            start = max(0, number - 2)
            while start < number and len(lines[start]) > LONGEST_READ:
                start += 1
            found.append((max(start, found[-1][1] if found else 0), number + 1))
        elif left:
            found[-1] = (found[-1][0], number + 1)
        left = LINES_AFTER if telling else max(0, left - 1)
    return found


def _ending_in(words: list[str]) -> re2.Pattern[str]:
    """A pattern for text that ends with a name containing one of the words."""
    names = "|".join(map(re2.escape, words))
    return re2.compile(rf"(?i)(?:{names})[\w.-]{{0,40}} ?[\"']{{0,2}}\]? {{0,4}}$")


def _with_words(text: str) -> list[int]:
    """The rules, by their places, that have a word in the text."""
    return sorted(_words().Match(text.lower().encode("utf-8", "replace")) or ())


@cache
def _words() -> re2.Set:
    """All words of all rules, searched together."""
    options = re2.Options()
    options.max_mem = 64 * 2**20
    words = re2.Set.SearchSet(options)
    for rule in load("llm/secrets.yaml")["rules"]:
        words.Add("|".join(re2.escape(word.lower()) for word in rule["words"]))
    words.Compile()
    return words


@cache
def _rules() -> list[_Rule]:
    data: dict[str, Any] = load("llm/secrets.yaml")
    harmless = re.compile(f"(?is:{'|'.join(data['harmless'])})")
    rules = []
    for rule in data["rules"]:
        pattern = rule["pattern"]
        for name, part in data["parts"].items():  # in order: a part may hold later ones
            pattern = pattern.replace(f"%{name}%", part)
        rules.append(
            _Rule(
                name=rule["name"],
                pattern=re.compile(pattern, re.VERBOSE),
                when=rule.get("when"),
                spans_lines=rule.get("spans_lines", False),
                window=rule.get("window", False),
                short=rule.get("short", False),
                harmless=harmless,
                near=_ending_in(rule["words"]) if rule.get("near") else None,
                unless=re2.compile(f"(?i){'|'.join(rule['unless'])}") if "unless" in rule else None,
            )
        )
    return rules


# Marks untrusted text by lines that it cannot imitate.


# Angle brackets of other scripts, which look like a fence to a reader (Unicode TR 39).
_LEFT = (
    "\u2039\u3008\u27e8\u276e\u276c\u2770\u02c2\u1438\u227a"
    "\u29fc\ufe64\uff1c\u00ab\u300a\u27ea\u226a\u22d8"
)
_RIGHT = (
    "\u203a\u3009\u27e9\u276f\u276d\u2771\u02c3\u1433\u227b"
    "\u29fd\ufe65\uff1e\u00bb\u300b\u27eb\u226b\u22d9"
)
_ANGLES = str.maketrans(dict.fromkeys(_LEFT, "<") | dict.fromkeys(_RIGHT, ">"))
_FENCE = frozenset("<>")
_LOOKALIKE = re.compile(r"<\W*<|>\W*>")
# What chat templates turn into tokens of their own, so that text could change who is speaking:
# <|im_start|> (also with full-width bars), [INST], <<SYS>>, <start_of_turn>, <s>, <tool_call>
_SPECIAL = re.compile(
    r"<(?=[|\uff5c])|(?<=[|\uff5c])>"
    r"|<(?=/?(?:s|bos|eos|pad|unk|mask|sep|cls|think|end_of_utterance|(?:start|end)_of_turn"
    r"|tool_calls?|tool_response|tools|function_calls?)\b)"
    r"|<(?=</?SYS>)|\[(?=/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS)\])",
    re.IGNORECASE,
)


class Fence:
    """Wraps text that nobody vouches for, so that a model can tell where it begins and ends.

    The lines around it carry a random nonce that its author cannot know. Inside, invisible
    characters become escapes, a line that imitates a fence or holds the nonce is broken, and so
    are the markers by which chat templates tell speakers apart. Use one fence for one
    conversation.

    Args:
        seed: for tests and replays: equal seeds give equal nonces. Random when None.
    """

    def __init__(self, seed: str | None = None) -> None:
        drawn = secrets.token_bytes(16) if seed is None else seed.encode()
        self.nonce = hashlib.sha256(drawn).hexdigest()[:16]

    def wrap(self, label: str, text: str) -> str:
        """The text between two fence lines; `label` says what it is, in one line."""
        name = self._safe(" ".join(label.split()))
        return f"<<<untrusted {self.nonce} {name}\n{self._safe(text)}\nuntrusted {self.nonce}>>>"

    def _safe(self, text: str) -> str:
        lines = re.split(r"\r\n|\r|\n", text)
        return _SPECIAL.sub(_escaped, "\n".join(visible(self._broken(line)) for line in lines))

    def _broken(self, line: str) -> str:
        """The line with its angle brackets escaped if it could be taken for a fence."""
        folded = unicodedata.normalize("NFKC", line.translate(_ANGLES)).translate(_ANGLES)
        plain = re.sub(r"[^a-z0-9]", "", folded.casefold())
        guessed = self.nonce in plain
        if not guessed and not ("untrusted" in plain and _LOOKALIKE.search(folded)):
            return line
        return "".join(
            _escaped(c) if c.translate(_ANGLES) in _FENCE or (guessed and c.isalnum()) else c
            for c in line
        )


def _escaped(character: str | re.Match[str]) -> str:
    code = ord(character if isinstance(character, str) else character[0])
    if code < 0x100:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
