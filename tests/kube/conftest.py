"""The stand-in for an API server, and what an agent of a test has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from api_server import ApiServer
from api_store import Store
from kube_cluster import Cluster
from kube_files import AgentFiles, knowing

from schedmate.mate import SchedMate


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer(Store()) as server:
        yield server


@pytest.fixture
def cluster(server: ApiServer) -> Cluster:
    return Cluster(server)


@pytest.fixture(scope="session")
def mate(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SchedMate]:
    with knowing(tmp_path_factory.mktemp("mate")) as mate:
        yield mate


@pytest.fixture
def files(server: ApiServer, tmp_path: Path, mate: SchedMate) -> AgentFiles:
    return AgentFiles(server, tmp_path, mate)
