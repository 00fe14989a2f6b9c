"""Which cluster is meant, and how to reach it: a kubeconfig file, or the pod's own account."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any

from schedmate.errors import InputError, require
from schedmate.paths import is_file
from schedmate.terminal import clean

if TYPE_CHECKING:
    from kubernetes.client import ApiClient

MOST_CONNECTIONS = 64


def connect(kubeconfig: str | None = None, context: str | None = None) -> ApiClient:
    """A client for the cluster of a kubeconfig file, or the one in which this runs.

    Raises `MissingExtraError` without schedmate[k8s], and `InputError` if there is no cluster.
    """
    require("Kubernetes", "k8s", "kubernetes")
    import yaml
    from kubernetes import client, config

    found = client.Configuration()
    files = _kubeconfigs(kubeconfig)
    try:
        if kubeconfig is None and context is None:
            try:
                config.load_incluster_config(client_configuration=found)
            except config.ConfigException:
                _load(files, None, found)
        else:
            _load(files, context, found)
    except (config.ConfigException, OSError, ValueError, TypeError, yaml.YAMLError) as error:
        said = f"{', '.join(files)}: {clean(error, 300).rstrip('.')}"
        raise InputError(f"no cluster is known: {said}; {_NAME_ONE}.") from None
    found.connection_pool_maxsize = MOST_CONNECTIONS  # each watch keeps one
    found.retries = False  # requests are retried by `Api`, which knows which may be repeated
    return client.ApiClient(found)


_NAME_ONE = (
    "name a kubeconfig with --kubeconfig or KUBECONFIG, or run this in a pod with a service account"
)


def _kubeconfigs(named: str | None) -> list[str]:
    """The kubeconfig files, found as kubectl does."""
    said = named or os.environ.get("KUBECONFIG") or str(Path("~/.kube/config").expanduser())
    return [said] if named else [one for one in said.split(os.pathsep) if one]


def _load(files: list[str], context: str | None, into: Any) -> None:
    from kubernetes import config

    there = [one for one in files if is_file(Path(one))]
    if not there:
        raise InputError(f"no cluster is known: there is no {' or '.join(files)}; {_NAME_ONE}.")
    place = os.pathsep.join(there)
    config.load_kube_config(config_file=place, context=context, client_configuration=into)
