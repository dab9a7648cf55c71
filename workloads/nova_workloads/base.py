"""A workload of experiments: what sources on hosts emit, its processing, the expected results.

Entry points ``nova.workloads`` register workloads; docs/new-workload.md adds one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

import msgspec

from nova_core.errors import NovaError
from nova_core.extensions import Extensions
from nova_engines.flow import Match
from nova_engines.sources import READINGS, REPLAY, Sources

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

    from nova_core.model.plan import Plan
    from nova_core.model.problem import Problem
    from nova_workloads.comparison import Comparison

_INSTALLED = Extensions("nova.workloads", "workload")


@dataclass(frozen=True)
class Traffic:
    """How much sources emit, and which of it matches.

    Attributes:
        rate: of each source, tuples/s.
        window_ms: tumbling windows over event time, ms.
        keys: tuples of a window match where their sequence numbers are equal modulo this; 1 matches
            all of them.
        every: the remainder, the key, must be a multiple of this.
    """

    rate: float
    window_ms: int
    keys: int = 1
    every: int = 1

    @property
    def matches(self) -> float:
        """Results per tuple of a source."""
        return max(1.0, self.rate * self.window_ms / 1000 / self.keys) / self.every

    @property
    def match(self) -> Match:
        """Which tuples of a pair of sources match."""
        return Match(self.window_ms, self.keys, self.every)

    def at(self, rate: float) -> Self:
        """The same at another rate, with about as many results per tuple."""
        keys = max(1, round(self.keys * rate / self.rate / self.every)) * self.every
        return replace(self, rate=rate, keys=keys)


class Streams(Protocol):
    """What the sources of a problem emit in a run, and the expected results."""

    @property
    def expected_rate(self) -> float:
        """Results/s when everything keeps up."""
        ...

    @property
    def match(self) -> Match | None:
        """Which tuples of its pairs match; None of queries."""
        ...

    def sources(
        self,
        start_ms: int,
        seconds: float | None,
        *,
        watermark_ms: int = 10,
        buffer_timeout_ms: int = 100,
    ) -> Sources:
        """Where an engine gets the tuples from.

        Args:
            start_ms: when the sources begin, ms since the epoch.
            seconds: after which they end; None is without end.
            watermark_ms: how often sources say how far event time has come.
            buffer_timeout_ms: how long tuples may wait before they are sent.
        """
        ...

    def compare(self, plan: Plan, sources: Sources, records: Any, *, finished: bool) -> Comparison:
        """Compare the results of a run with the reference.

        Args:
            plan: that was run.
            sources: of `sources`.
            records: results, as the engine returns them.
            finished: whether the run ended by itself.
        """
        ...

    def samples(
        self, plan: Plan, sources: Sources, records: Any, measured_us: tuple[int, int]
    ) -> pa.Table:
        """The results of a run, a row each, as ``samples.parquet`` has them.

        Args:
            plan: that was run.
            sources: of `sources`.
            records: results, as the engine returns them.
            measured_us: begin and end of the measured time, us since the epoch; ``measured`` is
                true of results whose tuples were due in it.
        """
        ...

    def tuples_per_s(self, samples: pa.Table, measured_us: tuple[int, int]) -> float:
        """Input tuples that took part in results which arrived in the measured time, tuples/s."""
        ...

    def delivered(self, plan: Plan, records: Any, inside: NDArray[np.bool_]) -> Any:
        """(k,) results of each instance of a plan among some of the records; None if unknown."""
        ...


class Workload(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What an experiment runs; a subclass's fields are what its file may say under ``workload``.

    Attributes:
        source: kind of its sources (`nova_engines.sources.KINDS`), which not every engine runs.
    """

    source: ClassVar[str] = REPLAY

    @property
    def queries(self) -> bool:
        """Whether it is whole queries: their tuples have columns."""
        return self.source == READINGS

    def at(self, base: Path) -> Self:
        """The same with paths relative to a directory."""
        return self

    def windows_ms(self) -> list[int]:
        """Default windows of experiments."""
        return [100]

    def rates(self) -> list[float]:
        """Default rates of experiments, tuples/s."""
        return [1000.0]

    def check(self, windows_ms: Sequence[int]) -> None:
        """Refuse a workload that cannot run, before any host is used.

        Raises:
            NovaError: naming the field, the value and what would be accepted.
        """

    def traffic(self, window_ms: int, rate: float) -> Traffic:
        """What flows with these windows at this rate of each source, tuples/s."""
        return Traffic(rate, window_ms)

    def problem(self, hosts: Sequence[str], sink: str, traffic: Traffic) -> dict[str, Any]:
        """The part of a problem document that the workload decides: sources, and what is computed.

        Args:
            hosts: in the role of a source, in the inventory's order.
            sink: host of the sink.
            traffic: what flows.

        Raises:
            NovaError: for too few hosts.
        """
        raise NotImplementedError

    def streams(self, problem: Problem, traffic: Traffic, seed: int) -> Streams:
        """What the problem's sources emit.

        Args:
            problem: made of `problem`, an inventory and its hosts' capacities.
            traffic: what flows.
            seed: of made-up values.
        """
        raise NotImplementedError


def names() -> list[str]:
    """Kinds of workloads, sorted."""
    return _INSTALLED.names()


def workload(content: Mapping[str, Any], where: str = "workload") -> Workload:
    """A workload from its part of an experiment's file.

    Args:
        content: ``kind``, debs where it is missing, and the kind's parameters.
        where: what errors begin with.

    Raises:
        NovaError: naming the field, the value and what would be accepted.
    """
    from nova_core.io.syntax import convert

    content = dict(content)
    kind = content.pop("kind", "debs")
    loaded: type[Workload] = _INSTALLED.load(kind, f"{where}.kind")
    return convert(content, Path(where), loaded, NovaError)
