"""What every test gets: no network beyond this machine, and no settings from the user's home."""

from __future__ import annotations

import ipaddress
import itertools
import os
import shutil
import signal
import sys
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from cli_runner import Cli, Output
from hypothesis import HealthCheck, settings

from schedmate.base.confine.client import Confinement

# The same examples in every run, however slow the machine is. More of them, and others each time:
# `make test ARGS="-m hypothesis --hypothesis-profile thorough"`.
_common = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("schedmate", _common, max_examples=40, derandomize=True)
settings.register_profile("thorough", _common, max_examples=1000)
settings.load_profile("schedmate")

# A shell lets what it starts in the background ignore Ctrl-C, which children would inherit.
if signal.getsignal(signal.SIGINT) == signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# Some tests compare with what benchmarks do.
sys.path.append(str(Path(__file__).parent.parent / "benchmarks"))

_network_allowed = False


class NetworkBlockedError(RuntimeError):
    """A test tried to reach another machine."""


def _is_loopback(host: object) -> bool:
    if host is None or host == "" or host == "localhost":
        return True
    if isinstance(host, bytes):
        host = host.decode("ascii", "replace")
    try:
        return ipaddress.ip_address(str(host).partition("%")[0]).is_loopback
    except ValueError:
        return False


def _block_network(event: str, args: tuple[object, ...]) -> None:
    """Audit hook: see https://docs.python.org/3/library/audit_events.html."""
    if _network_allowed:
        return
    if event in ("socket.connect", "socket.sendto", "socket.sendmsg"):
        address = args[1]
        # Unix sockets have a path for an address, and a connected sendmsg has none.
        if isinstance(address, tuple) and not _is_loopback(address[0]):
            raise NetworkBlockedError(f"tests may not connect to {address[0]}")
    elif event in ("socket.getaddrinfo", "socket.gethostbyname") and not _is_loopback(args[0]):
        raise NetworkBlockedError(f"tests may not look up {args[0]}")


sys.addaudithook(_block_network)


@pytest.fixture(scope="session", autouse=True)
def confined() -> Iterator[Confinement]:
    """Held open, so that all tests of a process share one template of confined processes."""
    with Confinement() as one:
        yield one


@pytest.fixture(autouse=True)
def network(request: pytest.FixtureRequest) -> Iterator[None]:
    """Only a test marked `network` may leave this machine."""
    global _network_allowed  # noqa: PLW0603 - an audit hook cannot be removed, only told
    _network_allowed = request.node.get_closest_marker("network") is not None
    yield
    _network_allowed = False


@pytest.fixture(scope="session")
def homes(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Paths for homes: pytest would list thousands of them for each one that it makes."""
    folder = tmp_path_factory.mktemp("homes")
    return (folder / str(number) for number in itertools.count())


# Clusters and model servers that a machine may have, which no test but a `live` one is to reach.
_PROGRAMS = frozenset(
    (
        *("sacct", "sacctmgr", "salloc", "sattach", "sbatch", "sbcast", "scancel", "scontrol"),
        *("scrontab", "sdiag", "sinfo", "sprio", "squeue", "sreport", "srun", "sshare", "sstat"),
        *("strigger", "kubectl", "nvidia-smi", "ollama", "llama-server", "vllm", "lms"),
    )
)


@pytest.fixture(scope="session")
def programs(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A PATH as this machine's, without clusters and model servers."""
    places = []
    for place in map(Path, os.environ["PATH"].split(os.pathsep)):
        if any((place / name).exists() for name in _PROGRAMS):
            others = tmp_path_factory.mktemp("programs")
            for program in place.iterdir():
                if program.name not in _PROGRAMS:
                    (others / program.name).symlink_to(program)
            place = others  # noqa: PLW2901 - in its stead
        places.append(str(place))
    return os.pathsep.join(places)


@pytest.fixture(autouse=True)
def clean_environment(
    homes: Iterator[Path],
    programs: str,
    monkeypatch: pytest.MonkeyPatch,
    request: pytest.FixtureRequest,
) -> Path:
    """A home of its own for every test, and nothing of the machine's site; gives that home.

    There are no `SCHEDMATE_*` variables but the one that leads away from `/etc/schedmate`.
    """
    home = next(homes)
    home.mkdir()
    for name in [name for name in os.environ if name.startswith("SCHEDMATE_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("SCHEDMATE_SITE", str(home / "site"))
    if request.node.get_closest_marker("live") is None:
        monkeypatch.setenv("PATH", programs)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".config"))
    monkeypatch.setenv("XDG_DATA_HOME", str(home / ".local" / "share"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(home / ".cache"))
    monkeypatch.setenv("NO_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "120")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    return home


def pytest_addoption(parser: pytest.Parser) -> None:
    """For continuous integration, which has what a suite needs."""
    parser.addoption("--never-skip", action="store_true", help="A skipped test is a failure.")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if report.skipped and item.config.option.never_skip and not hasattr(report, "wasxfail"):
        why = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome, report.longrepr = "failed", f"skipped in spite of --never-skip: {why}"
    return report


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect `network` tests unless they were asked for."""
    if "network" in (config.option.markexpr or ""):
        return
    kept = [item for item in items if item.get_closest_marker("network") is None]
    if len(kept) != len(items):
        config.hook.pytest_deselected(items=[item for item in items if item not in kept])
        items[:] = kept


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Cli:
    """The command line in this process, from `main` on, errors and exit codes included."""
    from schedmate.cli import main

    def run(*arguments: str) -> Output:
        monkeypatch.setattr(sys, "argv", ["schedmate", *arguments])
        capsys.readouterr()
        code = 0
        try:
            main()
        except SystemExit as end:
            code = int(end.code or 0)
        captured = capsys.readouterr()
        return Output(code, captured.out, captured.err)

    return run


@pytest.fixture(scope="session")
def _built_history(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from schedmate.jobs import JobRecord
    from schedmate.retrieval.embedders import load_embedder
    from schedmate.retrieval.history import JobHistory

    directory = tmp_path_factory.mktemp("example") / "history"
    lines = (Path(__file__).parent.parent / "examples" / "history.jsonl").read_text().splitlines()
    with JobHistory.open(directory, load_embedder("bundled"), create=True) as history:
        for line in lines:
            history.add(JobRecord.model_validate_json(line))
    return directory


@pytest.fixture
def example_history(_built_history: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A history of its own for the test: the forty jobs of examples/history.jsonl."""
    return Path(shutil.copytree(_built_history, tmp_path_factory.mktemp("history") / "history"))
