"""Hosts to run the same tests on: on loopback, a virtual rack, and whatever SSH hosts there are.

``NOVA_TEST_INVENTORY`` names an inventory of real hosts.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
from loopback_hosts import loopback_inventory, rack_inventory, sshds
from needs import need_namespaces

from nova_testbed.hosts import Hosts, connect
from nova_testbed.inventory import Inventory, read_inventory
from nova_testbed.rack import VirtualRack


@contextmanager
def running_inventory(kind: str) -> Iterator[Inventory]:
    """Hosts of a kind, up and reachable."""
    if kind == "loopback":
        with sshds("one", "two", "three") as running:
            yield loopback_inventory(running)
    elif kind == "rack":
        need_namespaces()
        rack = VirtualRack(rack_inventory())
        try:
            yield rack.up()
        finally:
            rack.down()
    else:
        yield read_inventory(os.environ["NOVA_TEST_INVENTORY"])


KINDS = [
    "loopback",
    pytest.param("rack", marks=pytest.mark.e2e),
    *(["real"] if os.environ.get("NOVA_TEST_INVENTORY") else []),
]


@pytest.fixture(scope="session", params=KINDS)
def inventory(request: pytest.FixtureRequest) -> Iterator[Inventory]:
    """An inventory whose hosts are up: of each kind there is."""
    with running_inventory(request.param) as running:
        yield running


@pytest.fixture(scope="session")
def connected(inventory: Inventory) -> Iterator[Hosts]:
    with connect(inventory) as hosts:
        yield hosts
