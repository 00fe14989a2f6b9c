"""Marks untrusted text by lines that it cannot imitate."""

from __future__ import annotations

import hashlib
import re
import secrets
import unicodedata

from schedmate.visible import visible

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
