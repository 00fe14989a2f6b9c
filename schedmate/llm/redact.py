"""Secrets are taken out of what is sent to a model."""

from __future__ import annotations

import re
import threading
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from typing import Any

from schedmate.data import load

PLACEHOLDER = re.compile(r"\[secret:[a-z_]{1,40}:[0-9]{1,9}\]")
"""What stands in a text where a secret was."""
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
        self._rules = [rule for rule in _rules() if emails or rule.when != "asked"]
        self._placeholders: dict[tuple[str, str], str] = {}
        self._secrets: dict[str, str] = {}
        self._numbers: Counter[str] = Counter()
        self._lock = threading.Lock()

    def redact(self, text: str) -> str:
        """The text without its secrets; redacting twice changes nothing more."""
        with self._lock:
            return self._redacted(PLACEHOLDER.sub(self._forged, text))

    def _redacted(self, text: str) -> str:
        lowered = text.lower()
        rules = [(rule, [word for word in rule.words if word in lowered]) for rule in self._rules]
        for rule, words in rules:
            if words and rule.spans_lines:
                text = rule.pattern.sub(self._replacer(rule), text)
        # Few lines hold any word of a rule, and only those are searched.
        lines = text.splitlines(keepends=True)
        lowered_lines = [line.lower() for line in lines]
        for rule, words in rules:
            if words and not rule.spans_lines:
                for index, line in enumerate(lowered_lines):
                    if any(word in line for word in words):
                        lines[index] = rule.pattern.sub(self._replacer(rule), lines[index])
        return "".join(lines)

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
        return placeholder + "".join(_NEWLINE.findall(secret))


@dataclass(frozen=True, slots=True)
class _Rule:
    name: str
    pattern: re.Pattern[str]
    words: tuple[str, ...]
    when: str | None
    spans_lines: bool
    harmless: re.Pattern[str]

    def takes(self, match: re.Match[str], secret: str) -> bool:
        """Whether a match is a secret."""
        if self.harmless.fullmatch(secret):
            return False
        if self.when == "random":
            return _is_random(secret)
        if self.when == "literal":
            # An upper-case name is an environment variable, whose value is always literal.
            return match[0][:1].isupper() or not _CODE.fullmatch(secret)
        return True


def _is_random(value: str) -> bool:
    """Whether letters and digits alternate as no words do: runs of one kind are short."""
    runs = _RUN.findall(value)
    return len(runs) > 4 and sum(map(len, runs)) / len(runs) < 3


@cache
def _rules() -> list[_Rule]:
    data: dict[str, Any] = load("llm/secrets.yaml")
    harmless = re.compile(f"(?is:{'|'.join(data['harmless'])})")
    rules = []
    for rule in data["rules"]:
        pattern = rule["pattern"]
        for name, part in data["parts"].items():
            pattern = pattern.replace(f"%{name}%", part)
        rules.append(
            _Rule(
                name=rule["name"],
                pattern=re.compile(pattern, re.VERBOSE),
                words=tuple(word.lower() for word in rule["words"]),
                when=rule.get("when"),
                spans_lines=rule.get("spans_lines", False),
                harmless=harmless,
            )
        )
    return rules
