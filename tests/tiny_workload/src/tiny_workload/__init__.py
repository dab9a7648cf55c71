"""A workload as somebody else's package would bring it: vibration and temperature of machines."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any

import numpy as np
from msgspec import Meta

from nova_core.errors import NovaError
from nova_core.model.problem import Problem
from nova_workloads.base import Traffic, Workload
from nova_workloads.joined_streams import JoinedStreams
from nova_workloads.streams import Stream

VALUES = 1000


class Machines(Workload, frozen=True, kw_only=True):
    """Vibration joined with the temperature of the same machine.

    Attributes:
        machines: how many; both sensors of one are on the same host.
        hot: temperature around which they vary, °C.
    """

    machines: Annotated[int, Meta(ge=1)] = 1
    hot: float = 80.0

    def traffic(self, window_ms: int, rate: float) -> Traffic:
        """One result per tuple."""
        return Traffic(rate, window_ms, keys=max(1, round(rate * window_ms / 1000)))

    def problem(self, hosts: Sequence[str], sink: str, traffic: Traffic) -> dict[str, Any]:
        """Two sources per machine, and their join."""
        if len(hosts) < self.machines:
            raise NovaError(f"workload.machines: {self.machines}: {len(hosts)} hosts have sources")
        kinds = ("vibration", "temperature")
        return {
            "query": {
                "operators": [
                    {"id": "wear", "left": kinds[0], "right": kinds[1], "sink": sink}
                    | {"match": "key"}
                ]
            },
            "sources": [
                {"id": f"{kind}-{number}", "node": host, "stream": kind, "rate": traffic.rate}
                | {"key": f"machine-{number}"}
                for number, host in enumerate(hosts[: self.machines], 1)
                for kind in kinds
            ],
        }

    def streams(self, problem: Problem, traffic: Traffic, seed: int) -> JoinedStreams:
        """Values at random."""
        random, s = np.random.default_rng(seed), problem.sources
        time = np.arange(VALUES)
        middle = {"vibration": 0.0, "temperature": self.hot}
        streams = [
            Stream(
                str(name), str(key), str(kind), time, random.normal(middle[str(kind)], 1, VALUES)
            )
            for name, key, kind in zip(s.ids, s.key, s.stream, strict=True)
        ]
        return JoinedStreams(problem, streams, traffic)
