"""The service's address, access rules and limits."""

from __future__ import annotations

import ipaddress
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from schedmate.base.errors import InputError, UsageError
from schedmate.base.reading import is_secret, open_descriptor
from schedmate.settings import data_dir

SHORTEST_TOKEN = 16
"""Characters of a bearer token at least."""
_LONGEST_FILE = 65_536
PORT = 8765


@dataclass(frozen=True, slots=True)
class Limits:
    """Limits on requests; those beyond are refused at once, to keep the others quick.

    `in_flight`: requests being answered; `reading`: those of them that read repositories or logs,
    in this number of processes, and the same number may wait; `rate` [requests/s] of one client, 0
    for no limit; `body` [bytes]; `deadline_s` [s]: longest time of a request, and `advice_s` of one
    for advice; `connections`: open connections, of which a quarter may wait with one address;
    `header_s`, `body_s` [s]: longest time until a request's header, and then its body, are there.
    """

    in_flight: int = 64
    reading: int = 4
    rate: float = 2_000.0
    body: int = 4 << 20
    deadline_s: float = 60.0
    advice_s: float = 2.0
    connections: int = 512
    header_s: float = 5.0
    body_s: float = 10.0
    stop_s: float = 10.0


@dataclass(frozen=True, slots=True)
class ServeOptions:
    """Options of `schedmate serve`.

    `socket`: path of a unix socket, else `host` and `port`. `roots`: directories with repositories
    and logs that may be read, links resolved. `state`: directory of the dashboard's data. `record`:
    file of the plans (`schedmate recover`). `names`: further names of this machine that a browser
    may use. `follow_s`: time between two readings of followed logs [s]. `agent`: directory of an
    agent whose jobs the dashboard shows, too.
    """

    state: Path = field(default_factory=lambda: data_dir() / "serve")
    record: Path = field(default_factory=lambda: data_dir() / "recovery.db")
    socket: Path | None = None
    socket_mode: int = 0o660
    host: str = "127.0.0.1"
    port: int = PORT
    token: str | Mapping[str, str] | None = field(default=None, repr=False)
    roots: tuple[Path, ...] = ()
    names: frozenset[str] = frozenset()
    limits: Limits = field(default_factory=Limits)
    follow_s: float = 15.0
    agent: Path | None = None

    def __post_init__(self) -> None:
        if self.socket is None and self.token is None and not is_loopback(self.host):
            raise UsageError(
                f"--host {self.host} can be reached from other machines, so the service needs "
                "--token-file FILE; make one with `openssl rand -hex 32 > FILE && chmod 600 FILE`."
            )

    @property
    def hosts(self) -> frozenset[str]:
        """Names by which a browser may address the service, in lower case."""
        own = {"localhost", "127.0.0.1", "[::1]", "::1", self.host.lower(), f"[{self.host}]"}
        return frozenset(own | {name.lower() for name in self.names})


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a host; a name other than localhost counts as outside."""
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host.strip("[]")).is_loopback
    except ValueError:
        return False


def read_token(path: Path) -> str | dict[str, str]:
    """The bearer token in a file that only its owner can read or write.

    A file with a line `NAME TOKEN` for each person gives the tokens by name, so that what somebody
    decides is kept under the right name.

    Raises `InputError` for a file that cannot be read, `UsageError` for one that others can read or
    whose token is too short to be secret.
    """
    try:
        descriptor = open_descriptor(path)
        with os.fdopen(descriptor, encoding="utf-8") as stream:
            status = os.fstat(descriptor)
            text = stream.read(_LONGEST_FILE).strip()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not text"
        raise InputError(
            f"cannot read the token file {path}: {reason}; correct the path."
        ) from None
    if not is_secret(status):
        raise UsageError(
            f"the token file {path} can be read by others; give it to yourself and run `chmod 600 "
            f"{path}` first."
        )
    lines = [line.split() for line in text.splitlines() if line.strip()]
    tokens = [line[-1] for line in lines]
    if not tokens or not all(map(_is_secret, tokens)):
        raise UsageError(
            f"the token in {path} must be at least {SHORTEST_TOKEN} printable ASCII characters on "
            f"one line; make one with `openssl rand -hex 32 > {path}`."
        )
    if lines == [tokens]:
        return tokens[0]
    people = [line[0] for line in lines]
    if any(len(line) != 2 for line in lines) or len(set(people)) < len(people):
        raise UsageError(
            f"{path} must hold one token, or a line `NAME TOKEN` for each person, no name twice."
        )
    if len(set(tokens)) < len(tokens):
        raise UsageError(f"two people in {path} have the same token; give each one of their own.")
    return dict(zip(people, tokens, strict=True))


def _is_secret(token: str) -> bool:
    return len(token) >= SHORTEST_TOKEN and token.isascii() and token.isprintable()
