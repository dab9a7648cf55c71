"""What a broker before an engine costs: latencies with the wait in it and without, back-pressure.

Definitions 2 to 4 of Costream (Heinrich et al., ICDE 2024).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nova_core.errors import NovaError
from nova_kafka.topics import kafka

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from nova_flink.results import ResultRecords

# A backlog that grows by less than this share of what arrives is not told from noise.
TOLERANCE = 0.02

Partition = tuple[str, int]


@dataclass(frozen=True, eq=False)
class Latencies:
    """Of results, us.

    Attributes:
        processing: L_p: from when the first of the two inputs was taken in by the engine to when
            the result reached the sink (Definition 2).
        end_to_end: L_e: from when the earlier input was produced (Definition 3).
    """

    processing: NDArray[np.int64]
    end_to_end: NDArray[np.int64]


def latencies(records: NDArray[np.void] | ResultRecords) -> Latencies:
    """L_p and L_e of every result.

    Args:
        records: (k,) with the fields `nova_flink.results.FIELDS`.
    """
    produced = np.minimum(records["left_emit_us"], records["right_emit_us"])
    end_to_end = (records["arrive_us"] - produced).astype(np.int64)
    return Latencies(end_to_end - records["waited_us"], end_to_end)


@dataclass(frozen=True)
class Sample:
    """A look at the broker.

    Attributes:
        time_s: when, seconds on any clock.
        end: per partition, messages it has had.
        read: per partition, messages the engine has read.
    """

    time_s: float
    end: Mapping[Partition, int]
    read: Mapping[Partition, int]

    def backlog(self, partition: Partition) -> int:
        """Messages of a partition that wait: at least 0, as both are not read at one moment."""
        return max(0, self.end[partition] - self.read.get(partition, 0))


@dataclass(frozen=True)
class BackPressure:
    """How backlogs grew over a run (Definition 4).

    Attributes:
        rates: per partition, tuples/s its backlog grew by; what is within the tolerance is 0.
        arrivals: per partition, tuples/s produced.
        backlog: messages of all partitions that waited at the last sample.
        most: the most that waited at any.
    """

    rates: Mapping[Partition, float]
    arrivals: Mapping[Partition, float]
    backlog: int
    most: int

    @property
    def rate(self) -> float:
        """R: the sum over all back-pressured streams, tuples/s."""
        return sum(self.rates.values())

    @property
    def occurred(self) -> bool:
        """R_O: whether there was any."""
        return self.rate > 0


def back_pressure(samples: Sequence[Sample], tolerance: float = TOLERANCE) -> BackPressure:
    """The growth of backlogs over a run: arrival rate minus processing rate, by least squares.

    Args:
        samples: at least two, at different times, while the producers send.
        tolerance: share of a partition's arrival rate below which growth counts as none.

    Raises:
        NovaError: for too few samples.
    """
    times = np.array([one.time_s for one in samples])
    if len(np.unique(times)) < 2:
        raise NovaError("back-pressure: at least two samples at different times are needed")
    partitions = sorted(samples[-1].end)
    waiting = np.array([[one.backlog(p) for p in partitions] for one in samples], float)
    ended = np.array([[one.end[p] for p in partitions] for one in samples], float)
    rates, arrivals = {}, {}
    for column, partition in enumerate(partitions):
        growth, arrival = (float(_slope(times, many[:, column])) for many in (waiting, ended))
        rates[partition] = growth if growth > tolerance * arrival else 0.0
        arrivals[partition] = arrival
    total = waiting.sum(axis=1)
    return BackPressure(rates, arrivals, int(total[-1]), int(total.max()))


def _slope(times: NDArray[np.float64], values: NDArray[np.float64]) -> float:
    centred = times - times.mean()
    return float(centred @ (values - values.mean()) / (centred @ centred))


def end_offsets(servers: str, partitions: Sequence[Partition]) -> dict[Partition, int]:
    """How many messages partitions have had.

    Raises:
        NovaError: when the broker does not say.
    """
    module = kafka()
    asked = {one: module.TopicPartition(*one) for one in partitions}
    try:
        with closing(
            module.KafkaConsumer(bootstrap_servers=servers, enable_auto_commit=False)
        ) as consumer:
            found = consumer.end_offsets(list(asked.values()))
    except module.errors.KafkaError as error:
        raise NovaError(f"Kafka at {servers}: end offsets: {error}") from error
    return {one: int(found[asked[one]]) for one in asked}


__all__ = [
    "BackPressure",
    "Latencies",
    "Partition",
    "Sample",
    "back_pressure",
    "end_offsets",
    "latencies",
]
