"""A page from its template, with a content security policy that admits its own parts only."""

from __future__ import annotations

import base64
import hashlib
import json
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedmate import __version__
from schedmate.base.inputs import moment_of
from schedmate.base.terminal import strip_escapes, visible

if TYPE_CHECKING:
    from jinja2 import Environment
    from markupsafe import Markup


FOLDER = Path(__file__).parent


def render(name: str, *shared: str, **values: Any) -> str:
    """The page `NAME.html.j2` with style and script inside it.

    These are shared by every page (`page.css`, `page.js`), by several (`charts`), or its own
    (`NAME.css`) if there is such a file. All `values` are escaped; `made` and `version` say when
    the page was written, and by what. Nothing but that style and that script, identified by their
    digests, may run or be loaded, whatever a text contains.
    """
    style, script = (_joined(("page", *shared, name), kind) for kind in ("css", "js"))
    policy = (
        f"default-src 'none'; style-src '{digest(style)}'; script-src '{digest(script)}'; "
        "base-uri 'none'; form-action 'none'"
    )
    template = _environment().get_template(f"{name}.html.j2")
    made = f"{datetime.now(UTC):%Y-%m-%d %H:%M UTC}"
    return template.render(
        style=style, script=script, policy=policy, made=made, version=__version__, **values
    )


def shown(text: object, limit: int = 500) -> str:
    """Text of a log on one line, every invisible or control character as an escape."""
    line = visible(strip_escapes(str(text))).replace("\n", "\\n").replace("\t", " ")
    return line if len(line) <= limit else line[: limit - 1] + "…"


def prose(text: object, limit: int = 1200) -> Markup:
    """A sentence of ours, shown: what stands between a pair of backticks is code."""
    from markupsafe import Markup, escape

    made = (Markup("<code>{}</code>").format(part) if n % 2 else escape(part)
            for n, part in enumerate(around_code(shown(text, limit))))  # fmt: skip
    return Markup("").join(made)


def around_code(text: str) -> list[str]:
    """What stands outside and inside pairs of backticks, in turn; one part where none are pairs."""
    parts = text.split("`")
    return parts if len(parts) % 2 else [text]


def embedded(document: Any) -> str:
    """A JSON document as the content of a script element that is never run."""
    text = json.dumps(document, separators=(",", ":"), allow_nan=False)
    for character in "<>&\u007f":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return text


def _joined(names: Sequence[str], kind: str) -> str:
    files = (FOLDER / f"{name}.{kind}" for name in names)
    return "".join(file.read_text(encoding="utf-8") for file in files if file.exists())


def digest(text: str) -> str:
    """The source expression by which a content security policy admits this style or script."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()


def environment(folder: Path) -> Environment:
    """Templates of a folder: values are escaped, unknown names are errors.

    Filters: `shown` for foreign text, `prose` for sentences, `ours` for style and script of the
    package.
    """
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    templates = Environment(
        loader=FileSystemLoader(folder),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    templates.filters["shown"] = shown
    templates.filters["prose"] = prose
    templates.filters["ours"] = Markup
    return templates


@cache
def _environment() -> Environment:
    templates = environment(FOLDER)
    templates.filters["date"] = lambda seconds: f"{moment_of(seconds):%Y-%m-%d}"
    return templates
