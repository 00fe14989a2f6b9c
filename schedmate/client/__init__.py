"""HTTP to servers that are not trusted: bounded in time and size, and nothing repeats the key.

    with open_client(base_url, keys=[key]) as http, deadline(time.monotonic() + 10):
        http.get(...)

Whatever the server does, a request ends at the deadline. Redirections are not followed, packed
replies are refused, and a reply never holds the key that the request carried.
"""

from __future__ import annotations

from schedmate.client.network import BadReplyError, deadline
from schedmate.client.retries import SERVER_BUSY, is_transient, never_sent, refusal, retrying
from schedmate.client.scrub import SCRUBBED
from schedmate.client.transport import base_address, open_client

__all__ = [
    "SCRUBBED",
    "SERVER_BUSY",
    "BadReplyError",
    "base_address",
    "deadline",
    "is_transient",
    "never_sent",
    "open_client",
    "refusal",
    "retrying",
]
