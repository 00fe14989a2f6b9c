"""Object storage on this machine: moto's server speaks the protocol of S3."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from object_storage import Put


@pytest.fixture(scope="session")
def endpoint() -> Iterator[str]:
    """The URL of a server of S3 for all tests of a process."""
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer("127.0.0.1", 0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def storage(endpoint: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """This process, and those that it starts, find the server and nothing else."""
    for name, value in (
        ("AWS_ENDPOINT_URL", endpoint),
        ("AWS_ACCESS_KEY_ID", "test"),
        ("AWS_SECRET_ACCESS_KEY", "test"),
        ("AWS_DEFAULT_REGION", "us-east-1"),
        ("AWS_EC2_METADATA_DISABLED", "true"),
    ):
        monkeypatch.setenv(name, value)
    from schedmate.base import objects

    objects._system_of.cache_clear()
    yield
    objects._system_of.cache_clear()


@pytest.fixture
def put(storage: None, request: pytest.FixtureRequest) -> Put:
    """Writes objects into a bucket of the test's own."""
    import s3fs

    system = s3fs.S3FileSystem(skip_instance_cache=True, use_listings_cache=False)
    bucket = f"b{abs(hash(request.node.nodeid)):x}"
    system.mkdir(bucket)

    def write(name: str, data: bytes | str) -> str:
        system.pipe_file(f"{bucket}/{name}", data.encode() if isinstance(data, str) else data)
        return f"s3://{bucket}/{name}"

    return write
