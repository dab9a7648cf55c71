"""A query of Spark's: which tasks of which stages it has, and on which hosts they run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

from nova_core.errors import NovaError
from nova_engines.sources import EARLIEST, KAFKA

if TYPE_CHECKING:
    from nova_engines.sources import Source

# Tasks of all stages run at once, so a host needs a slot for each; slots cost nothing.
SLOTS = 128


class Position(NamedTuple):
    """How far a source can come, as it counts.

    Attributes:
        source: its id.
        of_tuple: what it counts for a tuple; 0 where it does not.
        end: when it has sent everything; negative where it has no end.
    """

    source: str
    of_tuple: int
    end: int


@dataclass(frozen=True)
class Job:
    """A query of Spark's.

    Attributes:
        name: for people: of the sink of pairs.
        document: what `Job.scala` or `RowJob.scala` reads, but for its id.
        tasks: the stage and the number of the task that every operator is part of.
        sources: in the order in which Spark has them.
    """

    name: str
    document: dict[str, Any]
    tasks: dict[str, tuple[str, int]]
    sources: list[Position]


def host_of(addresses: Mapping[str, str], node: str) -> str:
    """Address of a node's executor.

    Raises:
        NovaError: where there is none.
    """
    if node not in addresses:
        raise NovaError(f"node {node!r}: it has no address")
    return addresses[node]


def topic_of(source: Source, *, strict: bool) -> dict[str, Any] | None:
    """Where a source reads Kafka, as `Job.scala` has it; None where it does not.

    Args:
        source: of any kind.
        strict: whether a message that is no tuple ends the job.

    Raises:
        NovaError: for one that does not begin with the first message, or has a group.
    """
    if source.kind != KAFKA:
        return None
    if source.begin != EARLIEST or source.group:
        raise NovaError(
            f"source {source.source!r}: begin {source.begin}, group {source.group!r}: Spark reads "
            "a partition from its first message, and commits nothing"
        )
    return {
        "servers": source.address,
        "name": source.topic,
        "partition": source.partition,
        "strict": strict,
    }


def require_slots(hosts: Sequence[str]) -> None:
    """Refuse more tasks on a host than it has slots.

    Args:
        hosts: of all tasks.
    """
    most = max(set(hosts), key=hosts.count)
    if hosts.count(most) >= SLOTS:
        raise NovaError(
            f"host {most}: {hosts.count(most)} tasks of Spark's; it has {SLOTS} slots: place less "
            "there"
        )
