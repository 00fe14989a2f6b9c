"""How an API server is reached: addresses and credentials, and requests that are bounded.

The official client reads kubeconfigs and finds the cluster of a pod; requests go through
`base/http.py`, so that an answer is bounded in time and size and never repeats our token. What an
answer unpacks to in memory is bounded as well (`Room`), since a few bytes of JSON may become
many.
"""

from __future__ import annotations

import json
import math
import os
import ssl
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode, urlsplit

from schedmate.base.errors import InputError, SchedmateError, require
from schedmate.base.files import is_file
from schedmate.base.terminal import clean
from schedmate.cluster.adapter import ExecutorError

if TYPE_CHECKING:
    import httpx2
    from kubernetes.client import Configuration

    from schedmate.base.http import StreamedReply

Json = dict[str, Any]

TOKENS_KEPT = 4
"""Tokens, of those that were used last, which no answer may repeat: they are renewed each hour."""


class KubernetesError(ExecutorError):
    """The API server refused a request (`code`, `reason`), or did not answer (`code` 0).

    `too_large`: its answer was larger than what is taken, and a part of it may be asked for.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = 0,
        reason: str = "",
        retry_after_s: float | None = None,
        too_large: bool = False,
    ) -> None:
        super().__init__(message)
        self.code, self.reason, self.retry_after_s = code, reason, retry_after_s
        self.too_large = too_large

    @property
    def passes(self) -> bool:
        """Whether the same request may be answered later."""
        return self.code in (0, 429) or self.code >= 500


class NoRoomError(KubernetesError):
    """Objects take more memory than they may."""


def connect(kubeconfig: str | None = None, context: str | None = None) -> Connection:
    """A connection to the cluster of a kubeconfig file, or the one in which this runs.

    Raises `MissingExtraError` without schedmate[k8s], and `InputError` if there is no cluster.
    """
    require("Kubernetes", "k8s", "kubernetes", "httpx2", "httpcore2")
    import yaml
    from kubernetes import client, config

    configuration = client.Configuration(proxy="")  # the environment's is found as for models
    files = _kubeconfigs(kubeconfig)
    try:
        if kubeconfig is None and context is None:
            try:
                config.load_incluster_config(client_configuration=configuration)
            except config.ConfigException:
                _load_kubeconfig(files, None, configuration)
        else:
            _load_kubeconfig(files, context, configuration)
        return Connection(configuration)
    except (config.ConfigException, OSError, ValueError, TypeError, yaml.YAMLError) as error:
        problem = f"{', '.join(files)}: {clean(error, 300).rstrip('.')}"
        raise InputError(f"no cluster is known: {problem}; {_NAME_A_FILE}.") from None


_NAME_A_FILE = (
    "name a kubeconfig with --kubeconfig or KUBECONFIG, or run this in a pod with a service account"
)


def _kubeconfigs(named: str | None) -> list[str]:
    """The kubeconfig files, found as kubectl does."""
    paths = named or os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    return [paths] if named else [one for one in paths.split(os.pathsep) if one]


def _load_kubeconfig(files: list[str], context: str | None, into: Any) -> None:
    from kubernetes import config

    there = [one for one in files if is_file(Path(one))]
    if not there:
        raise InputError(f"no cluster is known: there is no {' or '.join(files)}; {_NAME_A_FILE}.")
    place = os.pathsep.join(there)
    config.load_kube_config(config_file=place, context=context, client_configuration=into)


def context_namespace() -> str:
    """The namespace of the kubeconfig's current context; `default` where it names none."""
    require("Kubernetes", "k8s", "kubernetes")
    from kubernetes import config

    place = os.pathsep.join(one for one in _kubeconfigs(None) if is_file(Path(one)))
    try:
        _, active = config.list_kube_config_contexts(config_file=place)
        namespace = active["context"].get("namespace")
    except (config.ConfigException, OSError, ValueError, TypeError, KeyError, AttributeError):
        return "default"
    return namespace if isinstance(namespace, str) and namespace else "default"


class Connection:
    """Requests to one API server, as whoever the kubeconfig or the pod says."""

    def __init__(self, configuration: Configuration) -> None:
        from schedmate.base.http import BoundedTransport, Scrubber, base_address

        self._configuration = configuration
        self._tokens: list[str] = []
        self._lock = threading.Lock()
        self.server = base_address(str(configuration.host)).rstrip("/")
        """The address of the API server."""
        if urlsplit(self.server).scheme not in ("http", "https"):
            raise ValueError(f"{clean(self.server, 200)} is no address of a server")
        self.agent = "schedmate"
        """What it is told that we are."""
        self._transport = BoundedTransport(
            self.server, Scrubber([]), tls=_tls(configuration), proxy=configuration.proxy or None
        )

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def send(
        self,
        method: str,
        path: str,
        query: Json,
        body: Any,
        kind: str,
        *,
        ends: float,
        limit: int,
        opaque: bool = False,
    ) -> bytes:
        """The body of an answer of at most `limit` bytes, complete before `ends` (monotonic) [s].

        Raises `KubernetesError` for a refusal, for an answer that is too large, and for none.
        """
        from schedmate.base.http import deadline

        with _failures_of(self), deadline(ends):
            request = self._request(method, path, query, body, kind)
            answer = self._transport.send(request, limit, opaque=opaque)
        if not 200 <= answer.status_code < 300:
            raise self._refusal(method, path, answer)
        return answer.content

    def stream(
        self, path: str, query: Json, *, ends: float, limit: int, silence_s: float
    ) -> Streaming:
        """An answer that is read as it comes: at most so many bytes, complete before `ends`
        (monotonic) [s], and never silent for longer than `silence_s`."""
        from schedmate.base.http import Allowance

        allowance = Allowance(ends, limit, silence_s)
        with _failures_of(self):
            request = self._request("GET", path, query, None, "application/json")
            answer = self._transport.stream(request, allowance)
            if not 200 <= answer.status < 300:
                allowance.size = LONGEST_REFUSAL
                raise self._refusal("GET", path, answer.whole())
        return Streaming(self, answer)

    def _request(self, method: str, path: str, query: Json, body: Any, kind: str) -> httpx2.Request:
        import httpx2

        pairs = [(name, str(value)) for name, value in query.items() if value is not None]
        headers = {"Accept": "application/json, */*", "User-Agent": self.agent}
        if body is not None:
            headers["Content-Type"] = kind
        token = self._configuration.get_api_key_with_prefix("BearerToken", alias="authorization")
        if token:
            headers["Authorization"] = token
            self._keep(token.rpartition(" ")[2])
        server = self._configuration.tls_server_name
        return httpx2.Request(
            method,
            self.server + path + (f"?{urlencode(pairs)}" if pairs else ""),
            headers=headers,
            content=None if body is None else json.dumps(body).encode(),
            extensions={"sni_hostname": server} if server else {},
        )

    def _keep(self, token: str) -> None:
        """Have a token taken out of every answer from here on."""
        from schedmate.base.http import Scrubber

        with self._lock:
            if token not in self._tokens:
                self._tokens = [*self._tokens[1 - TOKENS_KEPT :], token]
                self._transport.scrub = Scrubber(self._tokens)

    def hidden_in(self, text: str) -> bool:
        """Whether a text holds a token of ours, plain or in escapes."""
        scrub, data = self._transport.scrub, text.encode("utf-8", "surrogatepass")
        return scrub(data) != data or scrub.hides_one(data)

    def scrubbed(self, text: str) -> str:
        """A text without our tokens."""
        return self._transport.scrub.text(text)

    def _refusal(self, method: str, path: str, answer: httpx2.Response) -> KubernetesError:
        try:
            status = json.loads(answer.content) if len(answer.content) <= LONGEST_REFUSAL else {}
        except (ValueError, RecursionError):
            status = {}
        status = status if isinstance(status, dict) else {}
        after = answer.headers.get("Retry-After", "")
        message = status.get("message") or answer.reason_phrase or "no reason given"
        # escapes of JSON are gone now: it is looked at once more
        message = self.scrubbed(message) if isinstance(message, str) else "no reason given"
        return KubernetesError(
            f"{self.server} refused {method} {path} ({answer.status_code}): "
            f"{clean(message, 400).rstrip('.')}.",
            code=answer.status_code,
            reason=clean(self.scrubbed(str(status.get("reason") or "")), 100),
            retry_after_s=min(60.0, float(after))
            if after.isascii() and after.isdigit() and len(after) < 10
            else None,
        )


LONGEST_REFUSAL = 1 << 20
"""Bytes of a refusal that are read."""


class Streaming:
    """The bytes of a streamed answer; `end` may be called from another thread."""

    def __init__(self, connection: Connection, answer: StreamedReply) -> None:
        self._connection, self._answer = connection, answer

    def parts(self) -> Iterator[bytes]:
        """The bytes as they come. Raises `KubernetesError` when the connection breaks."""
        parts = self._answer.parts()
        while True:
            with _failures_of(self._connection):
                part = next(parts, None)
            if part is None:
                return
            yield part

    def end(self) -> None:
        """Hang up."""
        self._answer.end()


class _failures_of:  # noqa: N801 - it is used as a function
    """What goes wrong with a request inside the block, as `KubernetesError`."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        import httpx2

        from schedmate.base.http import BadReplyError, TooLargeError

        if error is None or isinstance(error, SchedmateError):
            return
        server = self._connection.server
        # parsers quote what they could not read
        why = self._connection.scrubbed(_network_reason(error))
        if isinstance(error, BadReplyError):
            large = isinstance(error, TooLargeError)
            raise KubernetesError(f"{server}: {why}.", too_large=large) from None
        if isinstance(error, httpx2.TransportError | httpx2.InvalidURL | OSError):
            raise KubernetesError(f"{server} does not answer: {why}.") from None


def _network_reason(error: BaseException) -> str:
    """Why a request was not answered: the system's reason, if there is one."""
    cause: BaseException | None = error
    while cause is not None:
        if isinstance(cause, OSError) and cause.strerror and not isinstance(cause, ssl.SSLError):
            return clean(cause.strerror, 300).rstrip(".")
        cause = cause.__cause__ or cause.__context__
    return clean(error, 300).rstrip(".") or type(error).__name__


def _tls(configuration: Configuration) -> ssl.SSLContext:
    """How the server's certificate is verified, and ours, as a kubeconfig says."""
    context = ssl.create_default_context(
        cafile=configuration.ssl_ca_cert or None, cadata=configuration.ca_cert_data or None
    )
    # clusters' own authorities lack extensions that newer versions of Python ask for; kubectl and
    # other clients do not
    context.verify_flags &= ~getattr(ssl, "VERIFY_X509_STRICT", 0)
    if not configuration.verify_ssl:
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file or None)
    return context


# What answers may unpack to. A value of two bytes of JSON takes a hundred bytes of memory.


MOST_VALUES = 400_000
"""Values in one answer at most, before it is parsed; a page of 500 pods has up to 300,000."""
DEEPEST = 100
"""Mappings and lists within each other, in an object, at most."""
_EACH, _ENTRY = 64, 104
"""Bytes that a value takes, and an entry of a mapping with its key, about."""


def parsed(raw: bytes) -> Any:
    """The JSON of an answer, or None if it is none; raises `KubernetesError` where its values would
    not fit into memory."""
    if sum(map(raw.count, (b",", b"[", b"{"))) > MOST_VALUES:
        raise KubernetesError(
            f"an answer holds over {MOST_VALUES} values, more than is taken.", too_large=True
        )
    try:
        return json.loads(
            raw, parse_int=_whole_number, parse_float=_number, parse_constant=lambda _: None
        )
    except (ValueError, RecursionError):
        return None


def _whole_number(text: str) -> int | None:
    """A whole number of an object; None for one that is in no cluster."""
    return int(text) if len(text) <= 20 else None


def _number(text: str) -> float | None:
    value = float(text)
    return value if math.isfinite(value) else None


def size_of(value: Any, depth: int = 0) -> int:
    """About how many bytes of memory a JSON value takes. Raises `ValueError` if it is nested too
    deeply."""
    if depth > DEEPEST:
        raise ValueError(f"nested over {DEEPEST} deep")
    if isinstance(value, str):
        return _EACH + len(value) * (1 if value.isascii() else 4)
    if isinstance(value, dict):
        return _EACH + sum(
            _ENTRY + len(key) + size_of(one, depth + 1) for key, one in value.items()
        )
    if isinstance(value, list):
        return _EACH + sum(8 + size_of(one, depth + 1) for one in value)
    if isinstance(value, int):
        return 32 + value.bit_length() // 8
    return 32


def texts_of(value: Any) -> Iterator[str]:
    """All texts in a JSON value, keys included."""
    left = [value]
    while left:
        one = left.pop()
        if isinstance(one, str):
            yield one
        elif isinstance(one, dict):
            left += one.keys()
            left += one.values()
        elif isinstance(one, list):
            left += one


@dataclass
class Room:
    """How many bytes of memory objects may take, over all that share it."""

    most: int
    used: int = 0

    def __post_init__(self) -> None:
        self._lock = threading.Lock()

    def take(self, size: int, what: str) -> None:
        """Take so much, or raise `KubernetesError`; a negative size gives it back."""
        with self._lock:
            if size > 0 and self.used + size > self.most:
                raise NoRoomError(
                    f"{what} has more objects than fit into {self.most >> 20} MiB "
                    "(kubernetes: memory_mb)."
                )
            self.used += size
