"""What tests of the service share: a small problem, and a service in this process."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from serving import LIMIT, Service, begin
from starlette.testclient import TestClient

from nova_core.service.application import application
from nova_core.service.settings import Settings
from nova_core.service.store import Store


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """Starts the service on a directory, as often as asked; the one before must have ended."""
    with ExitStack() as stack:

        def start(directory: str = "data", **settings: Any) -> TestClient:
            (tmp_path / directory).mkdir(exist_ok=True)
            hosts = settings.pop("hosts", None)
            store = Store(Settings(tmp_path / directory, **{"limit": LIMIT, **settings}))
            app = application(store, hosts)
            client = TestClient(app, base_url="http://127.0.0.1")
            client.app_state["store"] = store
            return stack.enter_context(client)

        yield start


@pytest.fixture
def client(service: Service) -> TestClient:
    """A service that has nothing yet."""
    return service()


@pytest.fixture
def placed(client: TestClient) -> TestClient:
    """A service with a live placement `field`."""
    begin(client)
    return client
