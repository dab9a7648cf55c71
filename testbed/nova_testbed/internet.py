"""Latencies of a synthetic internet, for those without measurements.

Hosts are in real cities. Light in fibre covers the great-circle distance; what real networks
add to it is drawn: a detour per pair of cities, more between continents, a poorer route for
some pairs of hosts, and an access link per host. Detours and poor routes violate the triangle
inequality as often, and about as badly, as measurements do.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from nova_core.errors import NovaError
from nova_core.model.problem import Floats, Ints
from nova_testbed.cities import CITIES, CONTINENTS

EARTH_RADIUS_KM = 6371.0
# Light in fibre: two thirds of its speed in vacuum, 200 km in 1 ms; RTT counts the way twice.
KM_PER_RTT_MS = 100.0
# Hosts of a city lie this far from its centre (standard deviation).
CITY_KM = 15.0
# How much longer the way through fibre is than the great circle: per pair of cities, rarely much
# more than the least (log-normal), and per pair of continents. Chosen, as all figures below, to
# match the distribution of RIPE Atlas' latencies and of their triangle violations.
DETOUR_LEAST = 1.6
DETOUR_MEDIAN = 0.05
DETOUR_SPREAD = 1.3
CONTINENT_DETOUR_SPREAD = 0.3
# Noise per pair of hosts: relative to the distance, and ms of routers.
ROUTE_NOISE = 0.01
ROUTER_MS = 1.0
# Poor routes of single pairs of hosts: providers that meet far away (exponential).
POOR_SHARE = 0.06
POOR_MS = 40.0
# Access links (log-normal), ms.
ACCESS_MEDIAN_MS = 0.8
ACCESS_SPREAD = 1.1
# Pairs worked on at once.
CHUNK = 1 << 16

_MIX1, _MIX2, _STEP = (
    np.uint64(0xBF58476D1CE4E5B9),
    np.uint64(0x94D049BB133111EB),
    np.uint64(0x9E3779B97F4A7C15),
)


class SyntheticInternet:
    """Round-trip times between hosts of a synthetic internet.

    Nothing is stored per pair, so that a million hosts fit in memory: the same pair has the same
    latency each time.

    Attributes:
        city: (n,) index into `nova_testbed.cities.CITIES`.
        access: (n,) ms each host's access link adds to every round trip.
    """

    def __init__(self, nodes: int, seed: int, continents: tuple[str, ...] = ()) -> None:
        """Place the hosts.

        Args:
            nodes: how many.
            seed: one seed gives one internet.
            continents: of the hosts, from `CONTINENTS`; all by default.

        Raises:
            NovaError: for no hosts or an unknown continent.
        """
        if nodes < 1:
            raise NovaError(f"nodes: {nodes} is not accepted; at least 1 is expected")
        for name in continents:
            if name not in CONTINENTS:
                raise NovaError(
                    f"continents: unknown {name!r}; accepted are {', '.join(CONTINENTS)}"
                )
        rng = np.random.default_rng(seed)
        eligible = [not continents or city.continent in continents for city in CITIES]
        weight = np.array([city.weight for city in CITIES]) * eligible
        self.city: Ints = rng.choice(len(CITIES), size=nodes, p=weight / weight.sum())
        self._unit = self._scattered(rng)
        self.access: Floats = ACCESS_MEDIAN_MS * np.exp(ACCESS_SPREAD * rng.standard_normal(nodes))
        self._detour = _detours(rng)
        self._key = rng.integers(0, 2**63, dtype=np.uint64)

    def __len__(self) -> int:
        return len(self.city)

    def rtt(self, a: ArrayLike, b: ArrayLike) -> Floats:
        """Round-trip times of pairs of hosts.

        Args:
            a: indices of hosts, of any shape.
            b: indices of the other ends; ``a`` and ``b`` are broadcast.

        Returns:
            ms, in the common shape; 0 between a host and itself, the same in both directions.
        """
        first, second = np.broadcast_arrays(np.asarray(a, np.int64), np.asarray(b, np.int64))
        flat_a, flat_b = first.ravel(), second.ravel()
        rtt = np.empty(len(flat_a))
        # A million hosts with 20 neighbours each would make temporary arrays of gigabytes.
        for start in range(0, len(rtt), CHUNK):
            part = slice(start, start + CHUNK)
            rtt[part] = self._rtt(flat_a[part], flat_b[part])
        return rtt.reshape(first.shape)

    def _rtt(self, a: Ints, b: Ints) -> Floats:
        apart = self._unit[a] - self._unit[b]
        chord = np.sqrt(np.einsum("ij,ij->i", apart, apart))
        km = 2 * EARTH_RADIUS_KM * np.arcsin(np.minimum(chord / 2, 1.0))
        poor, noise = self._uniform(a, b, 1), self._uniform(a, b, 2)
        fibre = km / KM_PER_RTT_MS * self._detour[self.city[a], self.city[b]]
        route = fibre * (1 - ROUTE_NOISE * np.log(noise)) + ROUTER_MS * noise
        route -= np.where(poor < POOR_SHARE, POOR_MS * np.log(poor / POOR_SHARE), 0.0)
        return np.where(a == b, 0.0, route + (self.access[a] + self.access[b]))

    def matrix(self) -> Floats:
        """(n, n) round-trip times of all pairs, ms; symmetric, zeros on the diagonal."""
        index = np.arange(len(self))
        return self.rtt(index[:, None], index[None, :])

    def _scattered(self, rng: np.random.Generator) -> NDArray[np.float32]:
        """(n, 3) points on the unit sphere around the hosts' cities."""
        latitude = np.radians([city.latitude for city in CITIES])[self.city]
        longitude = np.radians([city.longitude for city in CITIES])[self.city]
        unit = np.stack(
            [
                np.cos(latitude) * np.cos(longitude),
                np.cos(latitude) * np.sin(longitude),
                np.sin(latitude),
            ],
            axis=1,
        )
        unit += rng.normal(0, CITY_KM / EARTH_RADIUS_KM, unit.shape)
        unit /= np.linalg.norm(unit, axis=1, keepdims=True)
        return np.asarray(unit, np.float32)

    def _uniform(self, a: Ints, b: Ints, stream: int) -> Floats:
        """A random number in (0, 1) per unordered pair, always the same (splitmix64)."""
        low, high = np.minimum(a, b).astype(np.uint64), np.maximum(a, b).astype(np.uint64)
        x = (low * np.uint64(len(self)) + high) * _STEP + self._key + np.uint64(stream)
        x = (x ^ (x >> np.uint64(30))) * _MIX1
        x = (x ^ (x >> np.uint64(27))) * _MIX2
        x ^= x >> np.uint64(31)
        return (np.asarray(x >> np.uint64(11), np.float64) + 0.5) * 2.0**-53


def _detours(rng: np.random.Generator) -> Floats:
    """(cities, cities) how much longer than the great circle each pair's way is; symmetric."""
    continent = np.array([CONTINENTS.index(city.continent) for city in CITIES])
    pair = _symmetric(rng.standard_normal((len(CITIES), len(CITIES))))
    between = _symmetric(rng.standard_normal((len(CONTINENTS), len(CONTINENTS))))
    exponent = (
        DETOUR_SPREAD * pair + CONTINENT_DETOUR_SPREAD * between[continent[:, None], continent]
    )
    return np.asarray(DETOUR_LEAST + DETOUR_MEDIAN * np.exp(exponent))


def _symmetric(values: Floats) -> Floats:
    return np.asarray(np.triu(values) + np.triu(values, 1).T)
