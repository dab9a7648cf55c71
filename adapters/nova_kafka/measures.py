"""Cost of a broker in front of an engine: latencies with and without its wait, back-pressure.

Definitions 2 to 4 of Costream (Heinrich et al., ICDE 2024).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from nova_core.errors import NovaError
from nova_kafka.topics import consumer, kafka

if TYPE_CHECKING:
    from numpy.typing import NDArray

# Growth of a backlog below this share of the arrivals counts as noise.
TOLERANCE = 0.02

Partition = tuple[str, int]


@dataclass(frozen=True, eq=False)
class Latencies:
    """Latencies of results, us.

    Attributes:
        processing: L_p: from when the first of the two inputs was taken in by the engine to when
            the result reached the sink (Definition 2); empty where that is unknown.
        end_to_end: L_e: from when the earlier input was produced (Definition 3).
    """

    processing: NDArray[np.int64]
    end_to_end: NDArray[np.int64]


def latencies(
    produced_us: NDArray[np.int64],
    arrive_us: NDArray[np.int64],
    waited_us: NDArray[np.int64] | None = None,
) -> Latencies:
    """L_p and L_e of every result.

    Args:
        produced_us: (k,) when the earlier of its inputs was produced, us since the epoch.
        arrive_us: (k,) when it reached the sink.
        waited_us: (k,) how long inputs waited before the engine took one in; None where unknown.
    """
    end_to_end = arrive_us - produced_us
    return Latencies(end_to_end[:0] if waited_us is None else end_to_end - waited_us, end_to_end)


@dataclass(frozen=True)
class Sample:
    """A sample of the broker's state.

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
        rates: per partition, tuples/s its backlog grew by; 0 where growth is not significant.
        arrivals: per partition, tuples/s produced.
        backlog: messages of all partitions that waited at the last sample.
        most: the most that waited at any sample.
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


def back_pressure(samples: Sequence[Sample]) -> BackPressure:
    """The growth of backlogs over a run: arrival rate minus processing rate, by least squares.

    Growth counts as none below `TOLERANCE`, or where its 95 % confidence interval does not set it
    apart from none.

    Args:
        samples: at least two, at different times, while the producers send.

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
        arrival = _slope(times, ended[:, column])[0]
        growth, doubt = _slope(times, waiting[:, column])
        rates[partition] = growth if growth > max(TOLERANCE * arrival, doubt) else 0.0
        arrivals[partition] = arrival
    total = waiting.sum(axis=1)
    return BackPressure(rates, arrivals, int(total[-1]), int(total.max()))


def _slope(times: NDArray[np.float64], values: NDArray[np.float64]) -> tuple[float, float]:
    """Least squares: the slope, and half of its 95 % confidence interval."""
    from scipy.stats import t

    centred = times - times.mean()
    spread = float(centred @ centred)
    slope = float(centred @ (values - values.mean())) / spread
    left = len(times) - 2
    if left == 0:
        return slope, np.inf
    off = values - values.mean() - slope * centred
    return slope, float(t.ppf(0.975, left) * np.sqrt(float(off @ off) / left / spread))


def end_offsets(servers: str, partitions: Sequence[Partition]) -> dict[Partition, int]:
    """How many messages partitions have had.

    Raises:
        NovaError: when the broker does not answer.
    """
    requested = {one: kafka().TopicPartition(*one) for one in partitions}
    with consumer(servers, "end offsets") as client:
        offsets = client.end_offsets(list(requested.values()))
    return {one: int(offsets[requested[one]]) for one in requested}
