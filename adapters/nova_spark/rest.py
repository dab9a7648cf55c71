"""Spark's REST interface of one application: on the driver's pages or a history server."""

from __future__ import annotations

from typing import Any

from nova_core.errors import NovaError
from nova_engines.json_interface import JsonInterface

TASKS = 10_000


class SparkError(NovaError):
    """Spark does not answer, or refuses."""


class Pages(JsonInterface):
    """Pages of a Master, a driver or a history server, by their URL."""

    engine = "Spark"
    server = "Spark"
    failure = SparkError


class Rest(Pages):
    """An application, running or (on a history server) ended.

    Args:
        url: of the pages, e.g. ``http://10.0.0.1:4040``.
        application: its id.
    """

    def __init__(self, url: str, application: str) -> None:
        super().__init__(url)
        self.application = application

    def _rows(self, path: str) -> list[dict[str, Any]]:
        return list(self.get(f"/api/v1/applications/{self.application}{path}"))

    def executors(self) -> list[dict[str, Any]]:
        """All executors, present and past."""
        return self._rows("/allexecutors")

    def stages(self) -> list[dict[str, Any]]:
        """All attempts at stages that ran tasks and are still known."""
        stages = self._rows("/stages")
        return [one for one in stages if one["status"] not in ("SKIPPED", "PENDING")]

    def tasks(self, stage: int, attempt: int) -> list[dict[str, Any]]:
        """Tasks of an attempt at a stage."""
        return self._rows(f"/stages/{stage}/{attempt}/taskList?length={TASKS}")


def registered(master: str) -> list[str]:
    """Addresses of the Workers that a Master knows; none while it does not answer.

    Args:
        master: URL of its pages.
    """
    try:
        workers = Pages(master).get("/json/")["workers"]
    except SparkError:
        return []
    return [str(one["host"]) for one in workers if one["state"] == "ALIVE"]
