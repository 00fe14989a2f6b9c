"""The stand-in by the official client's asynchronous half: what others drive a cluster with."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from api_server import ApiServer
from kube_cluster import THEIRS, Cluster
from kube_files import AgentFiles

pytest.importorskip("kubernetes.aio")

TAINT = {"key": "schedmate.io/isolated", "value": "ecc", "effect": "NoSchedule"}


async def talk(kubeconfig: str, seen: list[Any]) -> None:
    from kubernetes.aio import client, config, watch

    await config.load_kube_config(config_file=kubeconfig)
    async with client.ApiClient() as api:
        core, batch = client.CoreV1Api(api), client.BatchV1Api(api)
        nodes = await core.list_node()
        seen.append([one.metadata.name for one in nodes.items])
        seen.append((await batch.read_namespaced_job("train", "team-a")).spec.template.spec)
        # a list of taints is changed for the version that was read, and for no other
        node = nodes.items[0]
        for _ in range(2):
            version = node.metadata.resource_version
            body = [
                {"op": "test", "path": "/metadata/resourceVersion", "value": version},
                {"op": "add", "path": "/spec/taints/-", "value": TAINT},
            ]
            try:
                await core.patch_node(node.metadata.name, body)
            except client.ApiException as error:
                seen.append(error.status)
        # a budget that allows nothing refuses
        about = client.V1ObjectMeta(name="train-a", namespace="team-a")
        try:
            eviction = client.V1Eviction(api_version="policy/v1", kind="Eviction", metadata=about)
            await core.create_namespaced_pod_eviction("train-a", "team-a", eviction)
        except client.ApiException as error:
            seen.append((error.status, error.headers.get("Retry-After")))
        seen.append(await core.read_namespaced_pod_log("train-a", "team-a", container="train"))
        # a watch from a list on, with what happened since
        pods = await core.list_namespaced_pod("team-a")
        await core.patch_namespaced_pod("train-a", "team-a", {"metadata": {"labels": {"a": "b"}}})
        watching = watch.Watch()
        async for event in watching.stream(
            core.list_namespaced_pod, "team-a", resource_version=pods.metadata.resource_version
        ):
            seen.append((event["type"], event["object"].metadata.labels["a"]))
            watching.stop()
        await watching.close()


def test_the_asynchronous_client_is_answered(
    server: ApiServer, cluster: Cluster, files: AgentFiles
) -> None:
    cluster.node("gpu-1", taints=[dict(THEIRS)])
    job = cluster.job("train")
    cluster.pod(job, "gpu-1", name="train-a", log="step 1\n", labels={"app": "x"})
    cluster.budget("all", {"app": "x"}, allowed=0)
    seen: list[Any] = []
    asyncio.run(asyncio.wait_for(talk(str(files.folder / "kubeconfig"), seen), 300.0))
    names, template, conflict, refused, log, event = seen
    assert names == ["gpu-1"]
    assert template.containers[0].resources.limits == {"nvidia.com/gpu": "4"}
    assert conflict in (409, 422)
    assert refused[0] == 429
    assert refused[1] is not None
    assert log == "step 1\n"
    assert event == ("MODIFIED", "b")
    assert cluster.taints("gpu-1") == [THEIRS, TAINT]
