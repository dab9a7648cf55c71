"""Transit-stub internets like those of Georgia Tech's topology generator, deterministic.

E. Zegura, K. Calvert, S. Bhattacharjee, *How to Model an Internetwork*, INFOCOM 1996. Transit
domains form the core, every node of theirs serves some stub domains; routers within a domain are
linked at random. The defaults are the simulated network of SBON (section 4.1): 50 transit and 1500
stub nodes, 878 ms across. That text gives neither where domains lie in the plane nor how likely
links are; the defaults for these were chosen so that its comparators come out as published.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

import numpy as np

from nova_core.errors import ProblemError
from nova_core.model.problem import Bools, Floats, Ints

if TYPE_CHECKING:
    from numpy.random import Generator

# A domain whose random links leave it in parts is drawn again, so often at most.
_DRAWS = 1000


@dataclass(frozen=True)
class TransitStubParameters:
    """What network to make.

    Attributes:
        transit_domains: domains of the core.
        transit_nodes: nodes of each.
        stubs: stub domains of each transit node.
        stub_nodes: nodes of each stub domain.
        diameter: greatest latency between two nodes along their route, ms; scales all lengths.
        core_links: share of pairs of transit domains that are linked.
        transit_links: share of pairs of nodes within a transit domain that are linked.
        stub_links: share of pairs of nodes within a stub domain that are linked.
        transit_width: side of the square a transit domain fills, of the plane's side.
        stub_distance: mean distance of a stub domain's centre from its transit node, of the same.
        stub_width: side of the square a stub domain fills, of the same.
    """

    transit_domains: int = 10
    transit_nodes: int = 5
    stubs: int = 3
    stub_nodes: int = 10
    diameter: float = 878.0
    core_links: float = 0.45
    transit_links: float = 0.6
    stub_links: float = 0.42
    transit_width: float = 0.2
    stub_distance: float = 0.2
    stub_width: float = 0.15

    def __post_init__(self) -> None:
        for field in fields(self):
            value, name = getattr(self, field.name), f"transit-stub: {field.name}"
            if field.type == "int":
                least = 0 if field.name == "stubs" else 1
                if value < least or value % 1:
                    raise ProblemError(f"{name} is {value}; expected a whole number >= {least}")
            elif not 0 < value < np.inf:
                raise ProblemError(f"{name} is {value:g}; expected more than 0")
            elif field.name.endswith("links") and value > 1:
                raise ProblemError(f"{name} is {value:g}; expected a share up to 1")


@dataclass(frozen=True, eq=False)
class TransitStub:
    """A network and its routes.

    Transit nodes come first, domain after domain; then stub domains in the order of the transit
    nodes they belong to.

    Attributes:
        latency: (n, n) one-way latency along routes, ms, symmetric.
        towards: (n, n) next hops: ``towards[t, v]`` follows v on its route to t; t's own is t.
        hops: (n, n) links on each route.
        position: (n, 2) in the plane, ms.
        transit: (n,) whether a node is of a transit domain.
        region: (n,) the transit domain each node is of, or is connected through.
    """

    latency: Floats
    towards: Ints
    hops: Ints
    position: Floats
    transit: Bools
    region: Ints

    def __len__(self) -> int:
        return len(self.latency)


def transit_stub(seed: int = 0, parameters: TransitStubParameters | None = None) -> TransitStub:
    """Generate a network.

    Latencies are lengths in the plane. Routes follow policy weights as the generator assigns them:
    a link within a domain weighs 1 and one between transit domains more than any way within one, so
    that traffic stays in its domain while it can and routes are not always the fastest; of routes
    of equal weight the shorter one is taken. A stub has a single link to the core, so nothing
    passes through it.

    Args:
        seed: one seed gives one network.
        parameters: sizes and shares.

    Raises:
        ProblemError: when so few links are asked for that domains fall apart.
    """
    if seed < 0:
        raise ProblemError(f"transit-stub: seed {seed}; expected 0 or more")
    p = parameters or TransitStubParameters()
    random = np.random.default_rng(seed)
    transit = p.transit_domains * p.transit_nodes
    centre = np.repeat(random.random((p.transit_domains, 2)), p.transit_nodes, axis=0)
    core = centre + p.transit_width * (random.random((transit, 2)) - 0.5)
    inner = []
    for domain in range(p.transit_domains):
        links = _connected(random, p.transit_nodes, p.transit_links, "transit_links")
        inner.append(links + domain * p.transit_nodes)
    core_links = _connected(random, p.transit_domains, p.core_links, "core_links")
    ends = random.integers(p.transit_nodes, size=core_links.shape)
    between = core_links * p.transit_nodes + ends
    position, count = [core], transit
    for gateway in np.repeat(np.arange(transit), p.stubs).tolist():
        angle, far = 2 * np.pi * random.random(), p.stub_distance * random.uniform(0.5, 1.5)
        middle = core[gateway] + far * np.array([np.cos(angle), np.sin(angle)])
        position.append(middle + p.stub_width * (random.random((p.stub_nodes, 2)) - 0.5))
        links = _connected(random, p.stub_nodes, p.stub_links, "stub_links")
        uplink = [[gateway, count + int(random.integers(p.stub_nodes))]]
        inner += [links + count, np.array(uplink)]
        count += p.stub_nodes
    links = np.concatenate([*inner, between]).astype(np.int64)
    weight = np.ones(len(links))
    weight[len(links) - len(between) :] = p.transit_nodes
    place = np.concatenate(position)
    latency, towards, hops = _routes(place, links, weight)
    across = float(latency.max())
    scale = p.diameter / across if across > 0 else 1.0
    own = np.repeat(np.arange(p.transit_domains), p.transit_nodes)
    return TransitStub(
        latency=latency * scale,
        towards=towards,
        hops=hops,
        position=place * scale,
        transit=np.arange(count) < transit,
        region=np.concatenate([own, np.repeat(own, p.stubs * p.stub_nodes)]),
    )


def _connected(random: Generator, count: int, share: float, name: str) -> Ints:
    """(l, 2) random links between count nodes, drawn until they connect all."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import connected_components

    for _ in range(_DRAWS):
        links = np.triu(random.random((count, count)) < share, 1)
        if connected_components(csr_array(links.astype(np.int8)), directed=False)[0] == 1:
            return np.argwhere(links)
    raise ProblemError(
        f"transit-stub: {name} is {share:g}; {count} nodes linked so sparsely fall apart, expected "
        "a greater share"
    )


def _routes(position: Floats, links: Ints, weight: Floats) -> tuple[Floats, Ints, Ints]:
    """Latency, next hops and number of hops of all routes, each (n, n)."""
    from scipy.sparse import csr_array
    from scipy.sparse.csgraph import dijkstra

    count = len(position)
    length = np.linalg.norm(position[links[:, 0]] - position[links[:, 1]], axis=1)
    # Lengths of a whole route weigh less than the least difference of policy weights.
    distinct = weight + length / (2 * max(float(length.sum()), 1e-300))
    graph = csr_array((distinct, (links[:, 0], links[:, 1])), shape=(count, count))
    towards = dijkstra(graph, directed=False, return_predecessors=True)[1].astype(np.int64)
    node = np.arange(count)
    towards[node, node] = node
    # Ways of 1, 2, 4, ... links, until all have arrived.
    way = np.linalg.norm(position[towards] - position[None, :, :], axis=2)
    hops, next_ = (towards != node[None, :]).astype(np.int64), towards
    while (next_ != node[:, None]).any():
        way += np.take_along_axis(way, next_, axis=1)
        hops += np.take_along_axis(hops, next_, axis=1)
        next_ = np.take_along_axis(next_, next_, axis=1)
    return (way + way.T) / 2, towards, hops
