"""A cluster of real Flink for the tests of a module that names its ``NODES``, and ``ARGUMENTS``."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from needs_flink import require

from nova_flink.client import Client
from nova_flink.home import FlinkHome
from nova_flink.local_cluster import LocalCluster


@pytest.fixture(scope="module")
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[LocalCluster]:
    home = FlinkHome.default()
    require(home)
    directory = tmp_path_factory.mktemp("cluster")
    more = getattr(request.module, "ARGUMENTS", {})
    with LocalCluster(home, request.module.NODES, directory, **more) as running:
        yield running


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest, cluster: LocalCluster) -> Iterator[Client]:
    jars = getattr(request.module, "ARGUMENTS", {}).get("extra_jars", ())
    with Client(cluster.home, cluster.rest.url, jars) as found:
        yield found
