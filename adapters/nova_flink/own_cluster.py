"""TaskManagers of a user's cluster as nodes of plans: three settings each, or a pod each."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import yaml

from nova_engines.names import sanitised
from nova_flink.configuration import SLOTS, node_settings

README = """\
# Nodes of {title} for a Flink cluster of your own

Each file here belongs to the TaskManager of one node. Either add its lines to `conf/config.yaml`
there, beside what is in it:

    cat NODE.yaml >> $FLINK_HOME/conf/config.yaml

(where `external-resources` is set already, put the name into that list), or give them when it
starts, with one configuration for all:

    $FLINK_HOME/bin/taskmanager.sh start $(cat NODE.options)

That is all that TaskManagers need. `taskmanager.resource-id` is how Flink's web interface calls
them; two TaskManagers on one node each need one of their own, and may share the resource.
{units} units are how many slots of jobs may be on a node at once.

| node | file |
|---|---|
{rows}

The client that submits jobs needs `nova-flink.jar` in its `lib/`: `nova engines path flink` says
where it is, and Nova's page on Flink what to set.
"""


KUBERNETES = """\
# Nodes of {title} as pods of Flink on Kubernetes

    kubectl apply {files}

{count} StatefulSets, a TaskManager each, on the Kubernetes node whose label
`kubernetes.io/hostname` is in the table{manager}. Change image and memory as your cluster
needs it; Nova needs the settings in `FLINK_PROPERTIES` only. These files are valid by Kubernetes'
schemas. They were never run.

The client that submits jobs needs `nova-flink.jar` in its `lib/`: `nova engines path flink` says
where it is, and Nova's page on Flink what to set.

| node | StatefulSet | kubernetes.io/hostname |
|---|---|---|
{rows}
"""
JOB_MANAGER = "nova-jobmanager"
RPC, BLOBS, REST = 6123, 6124, 8081


def configuration_files(title: str, nodes: Iterable[str]) -> dict[str, str]:
    """A bundle with the settings of every node.

    Args:
        title: what the nodes are of.
        nodes: their names.
    """
    files = {}
    for node in nodes:
        configuration, name = node_settings(node), sanitised(node)
        options = " ".join(f"-D{key}={value}" for key, value in configuration.items())
        files[f"{name}.yaml"] = _lines(configuration)
        files[f"{name}.options"] = f"{options}\n"
    rows = "\n".join(f"| {node} | `{sanitised(node)}.yaml` |" for node in nodes)
    files["README.md"] = README.format(title=title, units=SLOTS, rows=rows)
    return files


def _lines(configuration: Mapping[str, object]) -> str:
    return "".join(f"{key}: {value}\n" for key, value in configuration.items())


# --- on Kubernetes ------------------------------------------------------------------------------


def kubernetes_files(
    title: str, addresses: Mapping[str, str], image: str, memory: str, job_manager: str
) -> dict[str, str]:
    """A bundle with a StatefulSet for every node, and a JobManager.

    Args:
        title: what the nodes are of.
        addresses: the Kubernetes node of each node, where it is not called like the node.
        image: of Flink.
        memory: of a TaskManager's process, such as ``1728m``.
        job_manager: address of an existing one; if empty, one is written.
    """
    documents = {} if job_manager else {"jobmanager.yaml": _job_manager(image)}
    sets, rows = [], []
    for number, (node, host) in enumerate(addresses.items(), 1):
        configuration = {
            "jobmanager.rpc.address": job_manager or JOB_MANAGER,
            **node_settings(node),
            "taskmanager.memory.process.size": memory,
        }
        name = f"nova-taskmanager-{number}"
        sets.append(_task_manager(name, node, host or node, image, configuration))
        rows.append(f"| {node} | {name} | {host or node} |")
    documents["taskmanagers.yaml"] = sets
    readme = KUBERNETES.format(
        title=title,
        files=" ".join(f"-f {name}" for name in documents),
        count=len(addresses),
        manager=f", under the JobManager at {job_manager}" if job_manager else ", and a JobManager",
        rows="\n".join(rows),
    )
    return {
        **{
            name: yaml.safe_dump_all(each, sort_keys=False, allow_unicode=True)
            for name, each in documents.items()
        },
        "README.md": readme,
    }


def _properties(configuration: dict[str, Any]) -> list[dict[str, str]]:
    return [{"name": "FLINK_PROPERTIES", "value": _lines(configuration)}]


def _job_manager(image: str) -> list[dict[str, Any]]:
    labels = {"app": JOB_MANAGER}
    ports = {"rpc": RPC, "blobs": BLOBS, "rest": REST}
    configuration = {"jobmanager.rpc.address": JOB_MANAGER, "blob.server.port": BLOBS}
    container = {
        "name": "jobmanager",
        "image": image,
        "args": ["jobmanager"],
        "env": _properties(configuration),
        "ports": [{"name": name, "containerPort": port} for name, port in ports.items()],
    }
    service = {"ports": [{"name": n, "port": port} for n, port in ports.items()]}
    return [
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"name": JOB_MANAGER},
            "spec": service | {"selector": dict(labels)},
        },
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": JOB_MANAGER},
            "spec": {
                "replicas": 1,
                "selector": {"matchLabels": dict(labels)},
                "template": {
                    "metadata": {"labels": labels},
                    "spec": {"containers": [container]},
                },
            },
        },
    ]


def _task_manager(
    name: str, node: str, host: str, image: str, configuration: dict[str, Any]
) -> dict[str, Any]:
    labels = {"app": name}
    container = {
        "name": "taskmanager",
        "image": image,
        "args": ["taskmanager"],
        "env": _properties(configuration),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "StatefulSet",
        "metadata": {"name": name, "annotations": {"nova/node": node}},
        "spec": {
            "serviceName": name,
            "replicas": 1,
            "selector": {"matchLabels": dict(labels)},
            "template": {
                "metadata": {"labels": labels},
                "spec": {
                    "nodeSelector": {"kubernetes.io/hostname": host},
                    "containers": [container],
                },
            },
        },
    }
