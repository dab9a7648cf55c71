"""Clusters of real Flink for tests: most share one, which takes long to start."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from needs_flink import SHARED_ARGUMENTS, SHARED_NODES, require

from nova_flink.client import Client
from nova_flink.home import FlinkHome
from nova_flink.local_cluster import LocalCluster


@contextmanager
def _running(
    request: pytest.FixtureRequest, nodes: list[str], **more: Any
) -> Iterator[LocalCluster]:
    home = FlinkHome.default()
    require(home)
    make: pytest.TempPathFactory = request.getfixturevalue("tmp_path_factory")
    with LocalCluster(home, nodes, make.mktemp("cluster"), **more) as running:
        yield running


def _arguments(request: pytest.FixtureRequest) -> dict[str, Any] | None:
    """Of a module's own cluster; None if it is one of those that share theirs."""
    more: dict[str, Any] = getattr(request.module, "ARGUMENTS", {})
    return more if more or not set(request.module.NODES) <= set(SHARED_NODES) else None


@pytest.fixture(scope="session")
def shared_cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    with _running(request, SHARED_NODES, **SHARED_ARGUMENTS) as running:
        yield running


@pytest.fixture(scope="session")
def shared_client(shared_cluster: LocalCluster) -> Iterator[Client]:
    with Client(shared_cluster.home, shared_cluster.rest.url) as found:
        yield found


@pytest.fixture(scope="module")
def cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A cluster with the ``NODES`` of a module; its own, if it names others, or ``ARGUMENTS``."""
    more = _arguments(request)
    if more is None:
        yield request.getfixturevalue("shared_cluster")
        return
    with _running(request, request.module.NODES, **more) as running:
        yield running


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest, cluster: LocalCluster) -> Iterator[Client]:
    more = _arguments(request)
    if more is None:
        yield request.getfixturevalue("shared_client")
        return
    with Client(cluster.home, cluster.rest.url, more.get("extra_jars", ())) as found:
        yield found
