"""Spark's REST interface of one application: on the driver's pages or a history server."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from http.client import HTTPException
from typing import Any

from nova_core.errors import NovaError

TIMEOUT_S = 20.0
TASKS = 10_000


class SparkError(NovaError):
    """Spark does not answer, or refuses."""


class Rest:
    """An application, running or (on a history server) ended.

    Args:
        url: of the pages, e.g. ``http://10.0.0.1:4040``.
        application: its id; may be left out if there is only one.
    """

    def __init__(self, url: str, application: str | None = None) -> None:
        self.url = url.rstrip("/")
        # Hosts of a cluster are near and reached without a proxy.
        self._opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
        if application is None:
            applications = [one["id"] for one in self._get("")]
            if len(applications) != 1:
                raise SparkError(
                    f"{self.url}: {len(applications)} applications "
                    f"({', '.join(applications[:5])}); say which"
                )
            application = str(applications[0])
        self.application = application

    def get(self, path: str) -> Any:
        """The JSON document at a path below the application.

        Raises:
            SparkError: when nothing answers in time, or with an error.
        """
        return self._get(f"/{self.application}{path}")

    def _get(self, path: str) -> Any:
        url = f"{self.url}/api/v1/applications{path}"
        try:
            with self._opener.open(url, timeout=TIMEOUT_S) as answer:
                return json.load(answer)
        except urllib.error.HTTPError as error:
            reason = error.read().decode(errors="replace").strip().partition("\n")[0]
            raise SparkError(f"{url}: {error.code} {reason[:200]}") from error
        except (OSError, HTTPException) as error:
            raise SparkError(f"no answer from Spark at {self.url}: {error}") from error
        except ValueError as error:
            raise SparkError(f"{url}: no JSON; is this an application's page?") from error

    def executors(self) -> list[dict[str, Any]]:
        """All executors, present and past."""
        executors: list[dict[str, Any]] = self.get("/allexecutors")
        return executors

    def stages(self) -> list[dict[str, Any]]:
        """All attempts at stages that ran tasks and are still known."""
        stages: list[dict[str, Any]] = self.get("/stages")
        return [one for one in stages if one["status"] not in ("SKIPPED", "PENDING")]

    def tasks(self, stage: int, attempt: int) -> list[dict[str, Any]]:
        """Tasks of an attempt at a stage."""
        tasks: list[dict[str, Any]] = self.get(f"/stages/{stage}/{attempt}/taskList?length={TASKS}")
        return tasks


def registered(master: str) -> list[str]:
    """Addresses of the Workers that a Master knows; none while it does not answer.

    Args:
        master: URL of its pages.
    """
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"{master}/json/", timeout=TIMEOUT_S) as answer:
            document: dict[str, Any] = json.load(answer)
    except (OSError, ValueError):
        return []
    return [str(one["host"]) for one in document["workers"] if one["state"] == "ALIVE"]
