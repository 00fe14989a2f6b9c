"""Exports of kubectl and scontrol, and the trace openb, as snapshots."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from schedmate.base.errors import InputError
from schedmate.cluster.exports import read_snapshot
from schedmate.cluster.kubernetes.nodes import live_node
from schedmate.cluster.kubernetes.snapshot import pod_requests, quantity, selects, tolerated
from schedmate.cluster.slurm.reading import OUT_OF_SERVICE, ShapeError, hosts_of, read_node
from schedmate.schedulers.fleet import openb
from schedmate.schedulers.fleet.defrag import SearchOptions, search_moves
from schedmate.schedulers.fleet.snapshot import MILLI, FleetSnapshot
from schedmate.schedulers.space import Space

HOST = "kubernetes.io/hostname"


def node(name: str, labels: dict[str, str] | None = None, **spec: Any) -> dict[str, Any]:
    labels = {HOST: name, "nvidia.com/gpu.product": "H20", **(labels or {})}
    there = {"cpu": "16", "memory": "64Gi", "nvidia.com/gpu": "8"}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": spec,
        "status": {"allocatable": there, "conditions": [{"type": "Ready", "status": "True"}]},
    }


def pod(
    name: str, where: str, gpus: int = 1, kind: str = "ReplicaSet", **more: Any
) -> dict[str, Any]:
    about = {"name": name, "namespace": "ml", "labels": more.pop("labels", {})}
    about["annotations"] = more.pop("annotations", {})
    if kind:
        about["ownerReferences"] = [{"kind": kind, "name": "owner", "controller": True}]
    resources = {"requests": {"cpu": "500m", "memory": "1Gi"}}
    if gpus:
        resources["limits"] = {"nvidia.com/gpu": str(gpus)}
    spec = {"nodeName": where, "containers": [{"resources": resources}], **more}
    return {"kind": "Pod", "metadata": about, "spec": spec, "status": {"phase": "Running"}}


def snapshot(tmp_path: Path, *items: dict[str, Any]) -> FleetSnapshot:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": list(items)}))
    return read_snapshot(path)


def anti(selector: dict[str, str], key: str = HOST) -> dict[str, Any]:
    term = {"labelSelector": {"matchLabels": selector}, "topologyKey": key}
    required = "requiredDuringSchedulingIgnoredDuringExecution"
    return {"podAntiAffinity": {required: [term]}}


def test_a_cluster_as_kubectl_says_it(tmp_path: Path) -> None:
    found = snapshot(
        tmp_path,
        node("a", {"network.topology.nvidia.com/leaf": "s1"}),
        node("b"),
        pod("one", "a", 2, labels={"job-name": "train"}),
        pod("two", "b", 0, priorityClassName="team-spot"),
        pod("part", "b", 0, annotations={"gpu-fraction": "0.25"}),
        pod("agent", "a", 0, kind="DaemonSet"),
        {**pod("done", "a"), "status": {"phase": "Succeeded"}},
        {**pod("waits", "a"), "spec": {"containers": []}},
    )
    assert found.nodes.name == ["a", "b"]
    assert found.tasks.name == ["ml/one", "ml/two", "ml/part"]
    assert found.gpu_types == ["H20"]
    assert found.switches == ["s1"]
    assert found.tasks.gpus.tolist() == [2000, 0, 250]
    assert found.tasks.low_priority.tolist() == [False, True, False]
    assert not found.tasks.locked.any()
    assert found.jobs[found.tasks.job[0]] == "ml/train"
    assert found.jobs[found.tasks.job[1]] == "ml/ReplicaSet/owner"
    # what belongs to the node is no task, and is missing there
    assert (found.nodes.cpus / MILLI).tolist() == [15.5, 16]
    assert found.nodes.memory[1] - found.nodes.memory[0] == pytest.approx(2**30 / 1e3, abs=1)
    assert found.origin == "recorded"


def locked(tmp_path: Path, *items: dict[str, Any]) -> dict[str, bool]:
    found = snapshot(tmp_path, node("a"), node("b"), *items)
    return dict(zip(found.tasks.name, found.tasks.locked.tolist(), strict=True))


def test_what_may_not_be_moved_is_locked(tmp_path: Path) -> None:
    keep = {"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}
    spread = [{"topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule", "maxSkew": 1}]
    together = {
        "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": HOST}]}
    }
    assert locked(
        tmp_path,
        pod("free", "a"),
        pod("kept", "a", annotations=keep),
        pod("bare", "a", kind=""),
        pod("spread", "a", topologySpreadConstraints=spread),
        pod("beside", "a", affinity=together),
        pod("zoned", "b", labels={"app": "z"}, affinity=anti({"app": "y"}, "zone")),
        pod("avoided", "b", labels={"app": "y"}),
    ) == {
        "ml/free": False,
        "ml/kept": True,
        "ml/bare": True,
        "ml/spread": True,
        "ml/beside": True,
        "ml/zoned": True,
        "ml/avoided": True,
    }


@pytest.mark.parametrize(("allowed", "moving"), [(0, 0), (1, 1), (9, 3)])
def test_disruption_budgets(tmp_path: Path, allowed: int, moving: int) -> None:
    budget = {
        "kind": "PodDisruptionBudget",
        "metadata": {"name": "b", "namespace": "ml"},
        "spec": {"selector": {"matchLabels": {"app": "web"}}},
        "status": {"disruptionsAllowed": allowed},
    }
    web = [pod(f"web{n}", "a", labels={"app": "web"}) for n in range(3)]
    found = locked(tmp_path, *web, pod("other", "a"), budget)
    assert sum(not one for one in found.values()) == moving + 1
    assert not found["ml/other"]


def test_pods_stay_where_selectors_affinity_and_taints_allow(tmp_path: Path) -> None:
    taint = [{"key": "team", "value": "x", "effect": "NoSchedule"}]
    tolerates = [{"key": "team", "operator": "Equal", "value": "x"}]
    term = {"matchExpressions": [{"key": "zone", "operator": "In", "values": ["1", "2"]}]}
    affinity = {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [term]}
        }
    }
    found = snapshot(
        tmp_path,
        node("a", {"zone": "1"}),
        node("b", {"zone": "2"}, taints=taint),
        node("c", {"zone": "3"}),
        node("d", {"zone": "1"}, unschedulable=True),
        pod("anywhere", "a"),
        pod("tolerant", "a", tolerations=tolerates, affinity=affinity),
        pod("selects", "c", nodeSelector={"zone": "3"}),
        pod("cordoned", "d"),
    )
    may = {}
    for t, name in enumerate(found.tasks.name):
        required = found.require_sets[found.tasks.require[t]].items()
        may[name] = "".join(
            node
            for n, node in enumerate(found.nodes.name)
            if required <= found.label_sets[found.nodes.labels[n]].items()
        )
    assert may["ml/anywhere"] == "ac"
    assert may["ml/tolerant"] == "ab"
    assert may["ml/selects"] == "c"
    # its node takes no pods any more, so nothing is said of where it may go but that it stays
    assert found.tasks.locked.tolist() == [False, False, False, True]


EVERYTHING = [{"operator": "Exists"}]
NOT_READY = {"conditions": [{"type": "Ready", "status": "Unknown"}]}


@pytest.mark.parametrize(
    ("spec", "status"),
    [
        ({"unschedulable": True}, {}),
        ({}, NOT_READY),
        ({"taints": [{"key": "schedmate.io/isolated", "value": "m", "effect": "NoSchedule"}]}, {}),
        ({"taints": [{"key": "node.kubernetes.io/disk-pressure", "effect": "NoSchedule"}]}, {}),
        ({"taints": [{"key": "ToBeDeletedByClusterAutoscaler", "effect": "NoSchedule"}]}, {}),
    ],
)
def test_no_pod_is_moved_to_a_node_out_of_service(
    tmp_path: Path, spec: dict[str, Any], status: dict[str, Any]
) -> None:
    out = node("b", **spec)
    out["status"] |= status
    found = snapshot(tmp_path, node("a"), out, pod("bold", "a", tolerations=EVERYTHING))
    assert not live_node(out, False, 0).healthy
    required = found.require_sets[found.tasks.require[0]].items()
    has = [found.label_sets[label].items() for label in found.nodes.labels]
    assert [required <= labels for labels in has] == [True, False]
    reserved = node("b", taints=[{"key": "team", "effect": "NoSchedule"}])
    found = snapshot(tmp_path, node("a"), reserved, pod("bold", "a", tolerations=EVERYTHING))
    assert live_node(reserved, False, 0).healthy
    assert not found.require_sets[found.tasks.require[0]]


def test_anti_affinity_becomes_groups_to_avoid(tmp_path: Path) -> None:
    found = snapshot(
        tmp_path,
        node("a"),
        node("b"),
        pod("web0", "a", labels={"app": "web"}, affinity=anti({"app": "web"})),
        pod("web1", "b", labels={"app": "web"}, affinity=anti({"app": "web"})),
        pod("both", "b", labels={"app": "db", "tier": "x"}),
        pod("shy", "a", affinity=anti({"tier": "x"})),
        pod("free", "a"),
    )
    group = [found.groups[g] if g >= 0 else "" for g in found.tasks.group.tolist()]
    avoid = [
        {found.groups[g] for g in found.avoid_sets[code]} for code in found.tasks.avoid.tolist()
    ]
    assert group[0] == group[1] != group[2] != ""
    assert group[3:] == ["", ""]
    assert avoid == [{group[0]}, {group[0]}, set(), {group[2]}, set()]


def test_a_running_cluster_may_violate_its_own_rules(tmp_path: Path) -> None:
    """`requiredDuringSchedulingIgnoredDuringExecution`; nodes that lost GPUs since, or are gone."""
    web = {"labels": {"app": "web"}, "affinity": anti({"app": "web"})}
    fewer = node("c")
    fewer["status"]["allocatable"]["nvidia.com/gpu"] = "3"
    shared = node("d")
    shared["status"]["allocatable"]["nvidia.com/gpu"] = "2"
    part = {"gpus": 0, "annotations": {"gpu-fraction": "0.6"}}
    found = snapshot(
        tmp_path,
        *(node("a"), node("b"), fewer, shared, pod("away", "gone")),
        *(pod("web0", "a", **web), pod("web1", "a", **web), pod("web2", "b", **web)),
        *(pod("free", "a"), pod("large", "c", gpus=4)),
        *(pod(f"part{n}", "d", **part) for n in range(3)),
    )
    locked = dict(zip(found.tasks.name, found.tasks.locked.tolist(), strict=True))
    assert {name for name, stays in locked.items() if stays} == {
        "ml/web0",
        "ml/web1",
        "ml/large",
        *(f"ml/part{n}" for n in range(3)),
    }
    assert found.whole_free.tolist() == [5, 7, 0, 0]
    assert found.notes == [
        "pods left out as the export does not have their node: 1",
        "nodes that hold more than they have now, whose tasks stay: 1",
        "tasks that stay because they run beside a group that they avoid: 2",
        "3 fractions of GPUs have no known GPU, and were assigned largest first",
        "nodes whose fractions need more GPUs, whose tasks stay: 1",
    ]
    moved = search_moves(found, SearchOptions()).moves
    assert {found.tasks.name[move.task] for move in moved} <= {"ml/web2", "ml/free"}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("500m", 0.5),
        ("16", 16),
        ("1Gi", 2**30),
        ("1.5G", 1.5e9),
        ("1e3", 1000),
        (4, 4),
        ("2k", 2e3),
    ],
)
def test_quantities(text: str | int, value: float) -> None:
    assert quantity(text) == pytest.approx(value)


@pytest.mark.parametrize("text", ["", "5x", "Gi", "1 2", "--1"])
def test_no_quantities(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        quantity(text)


def test_requests_of_a_pod_are_those_the_scheduler_counts() -> None:
    def container(cpu: str, **more: Any) -> dict[str, Any]:
        return {"resources": {"requests": {"cpu": cpu}}, **more}

    spec = {
        "containers": [container("1"), container("2")],
        "initContainers": [container("1", restartPolicy="Always"), container("5")],
        "overhead": {"cpu": "250m"},
    }
    # 5 beside the sidecar of 1 is more than 3 beside it
    assert pod_requests({"spec": spec})["cpu"] == pytest.approx(6.25)
    spec["initContainers"] = spec["initContainers"][:1]  # type: ignore[index]
    assert pod_requests({"spec": spec})["cpu"] == pytest.approx(4.25)


def test_selectors_and_taints() -> None:
    labels = {"a": "1", "n": "7"}
    for operator, values, expected in (
        ("In", ["1"], True),
        ("NotIn", ["1"], False),
        ("Exists", None, True),
        ("DoesNotExist", None, False),
    ):
        one = {"key": "a", "operator": operator, "values": values}
        assert selects({"matchExpressions": [one]}, labels) is expected
    assert selects({"matchExpressions": [{"key": "n", "operator": "Gt", "values": ["6"]}]}, labels)
    assert selects({}, labels)
    assert not selects(None, labels)
    taint = [{"key": "k", "effect": "NoExecute"}]
    assert tolerated([{"operator": "Exists"}], taint)
    assert not tolerated([{"key": "k", "operator": "Exists", "effect": "NoSchedule"}], taint)
    assert tolerated(None, [{"key": "k", "effect": "PreferNoSchedule"}])


NODES = [
    {
        "name": f"gpu0{n}",
        "gres": "gpu:a100:4(S:0-1)",
        "cpus": 64,
        "real_memory": 16000,
        "partitions": ["batch"] if n < 3 else "batch",
        "state": ["IDLE"] if n < 4 else ["IDLE", "DRAIN"],
    }
    for n in range(1, 5)
]


def job(number: int, nodes: str, gpus: int, **more: Any) -> dict[str, Any]:
    return {
        "job_id": number,
        "job_state": ["RUNNING"],
        "nodes": nodes,
        "partition": "batch",
        "tres_alloc_str": f"cpu=8,mem=2G,node=1,billing=8,gres/gpu={gpus},gres/gpu:a100={gpus}",
        "requeue": True,
        **more,
    }


def slurm(tmp_path: Path, *jobs: dict[str, Any], topology: str = "") -> FleetSnapshot:
    (tmp_path / "nodes.json").write_text(json.dumps({"nodes": NODES, "meta": {}}))
    (tmp_path / "jobs.json").write_text(json.dumps({"jobs": list(jobs)}))
    if topology:
        (tmp_path / "topology.conf").write_text(topology)
    return read_snapshot(tmp_path)


def test_a_cluster_as_slurm_says_it(tmp_path: Path) -> None:
    allocated = [
        {"nodename": "gpu01", "memory_allocated": 100},
        {"nodename": "gpu02", "memory_allocated": 300},
    ]
    new = {
        "nodes": {
            "allocation": [{"name": "gpu03", "cpus": {"count": 5}, "memory": {"allocated": 9}}]
        }
    }
    found = slurm(
        tmp_path,
        job(1, "gpu01", 2),
        job(
            *(2, "gpu[01-02]", 3),
            job_resources={"allocated_nodes": allocated},
            gres_detail=["gpu:a100:1(IDX:2)", "gpu:a100:2(IDX:0-1)"],
        ),
        job(3, "gpu03", 1, job_resources=new, job_state="RUNNING"),
        job(4, "gpu03", 1, requeue=False),
        job(5, "gpu04", 1),
        job(6, "gpu03", 1, exclusive=["true", "exclusive"]),
        job(7, "gpu01", 1, job_state=["PENDING"]),
        topology="SwitchName=s1 Nodes=gpu[01-02]\nSwitchName=s2 Nodes=gpu03 # two\n"
        "SwitchName=top Switches=s[1-2]\n",
    )
    rows = {name: t for t, name in enumerate(found.tasks.name)}
    assert list(rows) == ["1", "2@gpu01", "2@gpu02", "3", "4", "5", "6"]
    assert (found.tasks.gpus / MILLI).tolist() == [2, 1, 2, 1, 1, 1, 1]
    assert found.tasks.locked.tolist() == [False, True, True, False, True, True, True]
    assert found.tasks.cpus[rows["3"]] == 5 * MILLI
    assert found.tasks.memory[rows["2@gpu02"]] == round(300 * 2**20 / 1e3)
    assert found.tasks.memory[rows["1"]] == round(2048 * 2**20 / 1e3)
    assert found.gpu_types == ["a100"]
    assert [found.switches[s] if s >= 0 else "" for s in found.nodes.switch] == [
        "s1",
        "s1",
        "s2",
        "",
    ]
    assert found.aggregations == ["top"]
    assert any("run on several nodes" in note for note in found.notes)


@pytest.mark.parametrize("state", sorted(OUT_OF_SERVICE))
def test_nothing_is_moved_to_a_node_that_takes_no_jobs(tmp_path: Path, state: str) -> None:
    old, new = ({"state": "idle", "state_flags": [state]}, {"state": ["IDLE", state]})
    for says in (old, new, {"state": [state]}, {"state": f"IDLE+{state}"}):
        nodes = [NODES[0] | says, *NODES[1:3]]
        (tmp_path / "nodes.json").write_text(json.dumps({"nodes": nodes}))
        (tmp_path / "jobs.json").write_text(json.dumps({"jobs": [job(1, "gpu02", 1)]}))
        found = read_snapshot(tmp_path)
        only = read_node(nodes[0])
        assert not only.healthy
        assert [bool(labels) for labels in found.nodes.labels] == [False, True, True]


def test_slurm_without_topology_says_so(tmp_path: Path) -> None:
    assert "no topology.conf" in slurm(tmp_path, job(1, "gpu01", 1)).notes[-1]


def test_a_job_on_a_node_that_slurm_did_not_list(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="job 1 runs on node 'gpu09'"):
        slurm(tmp_path, job(1, "gpu09", 1))


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("a", ["a"]),
        ("a[1-3]", ["a1", "a2", "a3"]),
        ("a[08-10,3],b", ["a08", "a09", "a10", "a3", "b"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("", []),
    ],
)
def test_host_lists(text: str, names: list[str]) -> None:
    assert list(hosts_of(text)) == names


def test_host_lists_that_never_end() -> None:
    for text in ("a[1-9999999999]", "a[1-99999]b[1-99999]"):
        with pytest.raises(ShapeError, match="more than"):
            hosts_of(text)


@pytest.mark.parametrize(
    "items",
    [[{"kind": "Node"}], [node("a"), {"kind": "Pod", "spec": {"nodeName": "a"}}], ["text"], [None]],
)
def test_what_kubectl_never_writes(tmp_path: Path, items: list[Any]) -> None:
    with pytest.raises(InputError, match="not what kubectl exports"):
        snapshot(tmp_path, *items)


@pytest.mark.parametrize(
    ("item", "why"),
    [
        ({"kind": "Node", "status": {}}, "an object of it has no 'metadata'"),
        ({"kind": "Node", "metadata": ["a"], "status": {}}, "a field of it has another form"),
        ("a node", "a field of it has another form"),
        (
            {
                "kind": "Node",
                "metadata": {"name": "n"},
                "status": {"capacity": {"cpu": "many", "memory": "1"}},
            },
            "'many' is not a quantity",
        ),
    ],
)
def test_what_is_wrong_with_an_export_is_said_in_words(tmp_path: Path, item: Any, why: str) -> None:
    path = tmp_path / "cluster.json"
    path.write_text(json.dumps({"items": [item]}))
    with pytest.raises(InputError, match=re.escape(why)) as raised:
        read_snapshot(path)
    assert not re.search(
        r"KeyError|TypeError|AttributeError|ValueError|NoneType|'str'", str(raised.value)
    )


def test_folders_without_exports(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="has no JSON files"):
        read_snapshot(tmp_path)
    (tmp_path / "x.json").write_text("{}")
    with pytest.raises(InputError, match="none of its files has nodes"):
        read_snapshot(tmp_path)
    (tmp_path / "x.json").write_text("[1]")
    with pytest.raises(InputError, match="is not an object"):
        read_snapshot(tmp_path)


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    (tmp_path / openb.NODES[0]).write_text(
        "sn,cpu_milli,memory_mib,gpu,model\nn0,8000,8192,2,T4\nn1,8000,8192,2,P100\n"
    )
    (tmp_path / openb.PODS).write_text(
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
        "deletion_time,scheduled_time\n"
        "p0,1000,1024,1,460,,LS,Running,0,100,0\n"
        "p1,1000,1024,2,1000,,BE,Running,10,50,20\n"
        "p2,1000,1024,1,460,P100,LS,Pending,10,50,\n"
    )
    return tmp_path


def test_openb_at_a_moment(trace: Path) -> None:
    assert openb.read_openb(trace, at_s=10).tasks.name == ["p0"]
    found = openb.read_openb(trace, at_s=20)
    assert found.tasks.name == ["p0", "p1"]
    assert found.tasks.gpus.tolist() == [460, 2000]
    assert found.tasks.low_priority.tolist() == [False, True]
    assert found.synthetic
    assert len(openb.read_openb(trace, at_s=60).tasks) == 1


def test_openb_filled(trace: Path) -> None:
    found = openb.read_openb(trace, filled=0.9, seed=1, placement="random")
    asked = found.tasks.gpus.sum()
    assert asked <= found.gpus * MILLI
    assert "90%" in found.origin
    assert openb.read_openb(trace, filled=0.9, seed=1, placement="random").hash == found.hash
    p100 = found.gpu_types.index("P100")
    for t, name in enumerate(found.jobs[code] for code in found.tasks.job):
        assert name != "p2" or found.nodes.gpu_type[found.tasks.node[t]] == p100


def test_openb_as_it_fills_up(trace: Path) -> None:
    found = openb.unallocated(trace, "fgd", (1, 2))
    assert list(found) == [f"unallocated_{mark}" for mark in (90, 95, 100, 130)]
    assert found["unallocated_130"] <= found["unallocated_90"] < 100
    cluster, pods = openb.cluster_and_pods(trace)
    *_, last = openb.fill(cluster, openb.arrivals(pods, cluster, 1), Space(cluster))
    held = sum(job.gpus * job.share for job, _ in last.held)
    assert last.unallocated == pytest.approx(100 * (1 - held / cluster.gpus))
    assert len(last.refused) + len(last.held) >= len(pods)


def test_openb_is_many_snapshots(trace: Path) -> None:
    with pytest.raises(InputError, match="choose one with"):
        read_snapshot(trace)
