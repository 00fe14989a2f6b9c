"""What jobs used, by a real Prometheus server that has the series of each known exporter."""

from __future__ import annotations

import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from urllib.request import urlopen

import pytest

from schedmate.base.errors import InputError
from schedmate.cluster.usage import Stretch, measured_usage

pytestmark = [
    pytest.mark.live,
    pytest.mark.skipif(
        shutil.which("prometheus") is None or shutil.which("promtool") is None,
        reason="no prometheus and promtool; Debian's package prometheus has both",
    ),
]
EVERY_S, BEGAN = 30, int(time.time()) // 30 * 30 - 7200
RAN = Stretch(BEGAN + 600.0, BEGAN + 4200.0)
GIB = 2**30
POD = 'namespace="team-a",pod="train-{}"'
KEPT = 'exported_namespace="team-a",exported_pod="keeps-0",namespace="monitoring",pod="dcgm-x"'
SERIES: dict[str, tuple[float, float]] = {
    # series: its value when the job began, and what it gains by its end an hour later
    'slurm_job_utilization_gpu{slurmjobid="17",gpu="0"}': (30, 0),
    'slurm_job_utilization_gpu{slurmjobid="17",gpu="1"}': (50, 0),
    'slurm_job_memory_usage_gpu{slurmjobid="17",gpu="0"}': (2 * GIB, 3 * GIB),
    'slurm_job_memory_max{slurmjobid="17",instance="a"}': (2 * GIB, 2 * GIB),
    'slurm_job_memory_max{slurmjobid="17",instance="b"}': (4 * GIB, 0),
    'slurm_job_memory_limit{slurmjobid="17",instance="a"}': (16 * GIB, 0),
    'slurm_job_core_usage_total{slurmjobid="17",core="0"}': (0, 3600e9),
    'slurm_job_core_usage_total{slurmjobid="17",core="1"}': (0, 1800e9),
    'cgroup_memory_rss_bytes{jobid="18",step="",task=""}': (1 * GIB, 5 * GIB),
    'cgroup_memory_rss_bytes{jobid="18",step="0",task="0"}': (1 * GIB, 5 * GIB),
    'cgroup_memory_total_bytes{jobid="18",step="",task=""}': (8 * GIB, 0),
    'cgroup_cpus{jobid="18",step="",task=""}': (4, 0),
    'cgroup_cpu_total_seconds{jobid="18",step="",task=""}': (0, 3600),
    'nvidia_gpu_jobId{instance="a",minor_number="0"}': (18, 0),
    'nvidia_gpu_jobId{instance="a",minor_number="1"}': (99, 0),
    'nvidia_gpu_duty_cycle{instance="a",minor_number="0"}': (75, 0),
    'nvidia_gpu_duty_cycle{instance="a",minor_number="1"}': (5, 0),
    'nvidia_gpu_memory_used_bytes{instance="a",minor_number="0"}': (3 * GIB, 0),
    'DCGM_FI_DEV_GPU_UTIL{hpc_job="19",gpu="0"}': (60, 0),
    'DCGM_FI_DEV_FB_USED{hpc_job="19",gpu="0"}': (10240, 0),
    f"DCGM_FI_DEV_GPU_UTIL{{{POD.format(0)}}}": (90, 0),
    f"DCGM_FI_DEV_GPU_UTIL{{{POD.format(1)}}}": (70, 0),
    f"DCGM_FI_DEV_FB_USED{{{POD.format(1)}}}": (20480, 0),
    f'container_memory_working_set_bytes{{{POD.format(0)},container="train"}}': (GIB, 2 * GIB),
    f'container_memory_working_set_bytes{{{POD.format(0)},container=""}}': (GIB, 2 * GIB),
    f'kube_pod_container_resource_requests{{{POD.format(0)},resource="memory"}}': (6 * GIB, 0),
    f'kube_pod_container_resource_requests{{{POD.format(0)},resource="cpu"}}': (2, 0),
    f'container_cpu_usage_seconds_total{{{POD.format(0)},container="train"}}': (500, 1800),
    f"DCGM_FI_DEV_GPU_UTIL{{{KEPT}}}": (40, 0),
    f"DCGM_FI_DEV_FB_USED{{{KEPT}}}": (1024, 0),
    'kube_pod_container_resource_requests{exported_namespace="team-a",exported_pod="keeps-0",'
    'resource="cpu"}': (3, 0),
    'kube_pod_container_resource_requests{exported_namespace="team-a",exported_pod="keeps-0",'
    'resource="memory"}': (GIB, 0),
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server whose database has all of that already."""
    folder = tmp_path_factory.mktemp("prometheus")
    names: dict[str, list[str]] = {}
    for series, (first, gain) in SERIES.items():
        rows = names.setdefault(series.partition("{")[0], [])
        for at in range(0, 3601, EVERY_S):
            rows.append(f"{series} {first + gain * at / 3600} {RAN.began + at}")
    types = "".join(
        f"# TYPE {name} unknown\n" + "\n".join(rows) + "\n" for name, rows in names.items()
    )
    (folder / "series.txt").write_text(types + "# EOF\n")
    made = ["promtool", "tsdb", "create-blocks-from", "openmetrics", "series.txt", "data"]
    subprocess.run(made, cwd=folder, check=True, capture_output=True)
    (folder / "prometheus.yml").write_text("global: {evaluation_interval: 30s}\n")
    with socket.create_server(("127.0.0.1", 0)) as free:
        address = f"127.0.0.1:{free.getsockname()[1]}"
    words = ["--config.file=prometheus.yml", "--storage.tsdb.path=data"]
    with (folder / "log").open("w") as log:
        process = subprocess.Popen(
            ["prometheus", *words, f"--web.listen-address={address}"], cwd=folder, stderr=log
        )
    try:
        until = time.monotonic() + 60
        while not _is_ready(f"http://{address}/-/ready"):
            assert time.monotonic() < until, (folder / "log").read_text()
            time.sleep(0.1)
        yield f"http://{address}"
    finally:
        process.terminate()
        process.wait(30)


def _is_ready(url: str) -> bool:
    try:
        with urlopen(url, timeout=5) as reply:
            return bool(reply.status == 200)
    except OSError:
        return False


@pytest.mark.parametrize(
    ("kind", "labels", "gpu", "of_gpu", "memory", "asked", "cpus", "cpu"),
    [
        ("slurm", {"job": "17"}, 0.4, 5, 8, 16, 2, 0.75),
        ("slurm", {"job": "18"}, 0.75, 3, 6, 8, 4, 0.25),
        ("slurm", {"job": "19"}, 0.6, 10, None, None, None, None),
        ("slurm", {"job": "20"}, None, None, None, None, None, None),
        (
            *("kubernetes", {"namespace": "team-a", "pods": "train-0|train-1"}),
            *(0.8, 20, 3, 6, 2, 0.25),
        ),
        ("kubernetes", {"namespace": "team-a", "pods": "keeps-0"}, 0.4, 1, None, 1, 3, None),
    ],
)
def test_each_exporter_says_what_a_job_used(
    server: str,
    kind: str,
    labels: dict[str, str],
    gpu: float | None,
    of_gpu: float | None,
    memory: float | None,
    asked: float | None,
    cpus: int | None,
    cpu: float | None,
) -> None:
    used = measured_usage(server, kind, labels, RAN)
    found = (used.gpu, used.gpu_memory_bytes, used.memory_bytes, used.memory_asked_bytes)
    wanted = (gpu, *(None if one is None else one * GIB for one in (of_gpu, memory, asked)))
    assert found == tuple(None if one is None else pytest.approx(one) for one in wanted)
    assert used.cpus == cpus
    assert used.cpu == (None if cpu is None else pytest.approx(cpu, rel=0.05))


def test_another_time_has_nothing(server: str) -> None:
    earlier = Stretch(RAN.began - 3000, RAN.began - 2000)
    assert not any(measured_usage(server, "slurm", {"job": "17"}, earlier))


def test_a_refusal_of_prometheus_is_a_sentence(server: str) -> None:
    with pytest.raises(InputError, match=r"it answered 400: .*parse error"):
        measured_usage(server, "slurm", {"job": '"'}, RAN)


def test_an_address_of_something_else_is_a_sentence(server: str) -> None:
    with pytest.raises(InputError, match="it answered 404"):
        measured_usage(f"{server}/elsewhere", "slurm", {"job": "17"}, RAN)
