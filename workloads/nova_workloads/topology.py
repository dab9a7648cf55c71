"""Synthetic topologies and workloads after the Nova paper, section 4.1, up to millions of nodes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from nova_core.errors import ProblemError

if TYPE_CHECKING:
    from numpy.random import Generator

    from nova_core.model.problem import Floats, Problem, Strings

# The published simulations step through six capacity distributions. Their files hold
# (1 - h) * uniform + h * exponential with these h, to three digits.
HETEROGENEITY_LEVELS = (0.0, 0.342, 0.543, 0.711, 0.862, 1.0)

SOURCE_SHARE = 0.6
SOURCE_CAPACITY = 49  # greatest of the uniform distribution, tuples/s; the least is 1
WORKER_CAPACITY = 199
CAPACITY_LIMIT = 1000  # of the exponential distribution
OUTPUT_RATE = 10  # mean per join, tuples/s
SINK_HEADROOM = 1.2  # sink capacity over the output of all joins
WIDTH = 100.0  # of the plane's sides, ms
MIN_NODES = 4  # the sink, two sources to join and a worker


def generate(
    nodes: int,
    *,
    heterogeneity: float = 0.0,
    seed: int = 0,
    dimensions: int = 2,
    clusters: int = 10,
    rate_min: float = 1,
    rate_max: float = 75,
) -> Problem:
    """Generate a topology and a workload as the paper's simulations use them (section 4.1).

    Nodes lie in Gaussian clusters within x in [0, 100] ms and every other coordinate in [-50, 50]
    ms. One node, drawn at random, is the sink; 60 % of the others are sources and 40 % workers. A
    source belongs to the logical stream ``left`` or ``right`` and is joined with exactly one other.

    Capacities are (1 - h) * uniform + h * exponential with one mean, so that heterogeneity changes
    and the total stays about constant: sources from 1..49, workers from 1..199 tuples/s at h = 0,
    all of them 1..1000 at h = 1. `HETEROGENEITY_LEVELS` holds the h of the six published
    distributions. Any node but the sink may host joins; the sink's capacity is 1.2 times what all
    joins emit, so that it can take the result.

    Source rates are uniform whole numbers. Their default range, 1..75 tuples/s, is that of the
    published input files and loads about 40 % of the capacity, as theirs does. The paper's text
    gives 1..200, which with the capacities it gives asks for 110 % of what there is: nothing fits.
    A join emits 10 tuples/s on average: half of the joins 1, the others exponentially more.

    Args:
        nodes: number of nodes, the sink included, at least 4.
        heterogeneity: h, from 0 (near uniform, coefficient of variation of the capacities about
            0.95) to 1 (exponential, about 1.4).
        seed: one seed gives one problem, on any platform.
        dimensions: of the cost space, at least 2.
        clusters: number of Gaussian clusters.
        rate_min: least source rate, a whole number of tuples/s.
        rate_max: greatest source rate, a whole number of tuples/s.

    Raises:
        ProblemError: for an argument out of range.
    """
    import numpy as np

    from nova_core.model.problem import JoinMatrix, Joins, Nodes, Problem, Sources

    check(nodes, heterogeneity, seed, dimensions, clusters, rate_min, rate_max)
    random = np.random.default_rng(seed)
    joins = max(1, round((nodes - 1) * SOURCE_SHARE / 2))

    centre, spread = draw_clusters(random, dimensions, clusters)
    position = draw_positions(random, centre, spread, nodes)
    role = random.permutation(nodes)
    sink, left, right = role[0], role[1 : 1 + joins], role[1 + joins : 1 + 2 * joins]

    greatest = np.full(nodes, float(WORKER_CAPACITY))
    greatest[left] = greatest[right] = SOURCE_CAPACITY
    capacity = draw_capacities(random, greatest, heterogeneity)
    rate = random.integers(int(rate_min), int(rate_max), 2 * joins, endpoint=True)
    output_rate = draw_output_rates(random, joins)
    capacity[sink] = np.ceil(SINK_HEADROOM * output_rate.sum())

    worker = np.ones(nodes, bool)
    worker[sink] = False
    stream = np.repeat(np.array(["left", "right"]), joins)
    return Problem(
        nodes=Nodes(_names("n", nodes), position, capacity, worker),
        sources=Sources(
            ids=_names("s", 2 * joins),
            node=np.concatenate((left, right)),
            stream=stream,
            rate=rate.astype(np.float64),
        ),
        joins=Joins(np.array(["join"]), np.array(["left"]), np.array(["right"]), np.array([sink])),
        matrix=JoinMatrix(
            join=np.zeros(joins, np.int64),
            left=np.arange(joins),
            right=np.arange(joins, 2 * joins),
            output_rate=output_rate,
        ),
        name=f"synthetic-{nodes}-h{heterogeneity:g}-s{seed}",
    )


def check(
    nodes: int,
    heterogeneity: float,
    seed: int,
    dimensions: int,
    clusters: int,
    rate_min: float,
    rate_max: float,
) -> None:
    """Check the arguments of `generate`.

    Raises:
        ProblemError: for one out of range.
    """
    for name, value, least in (
        ("nodes", nodes, MIN_NODES),
        ("seed", seed, 0),
        ("dimensions", dimensions, 2),
        ("clusters", clusters, 1),
        ("rate_min", rate_min, 1),
        ("rate_max", rate_max, rate_min),
    ):
        if not value >= least or value % 1 != 0:
            raise ProblemError(f"generate: {name} {value}; expected a whole number >= {least:g}")
    if not 0 <= heterogeneity <= 1:
        raise ProblemError(f"generate: heterogeneity {heterogeneity}; expected 0 to 1")


def draw_clusters(random: Generator, dimensions: int, clusters: int) -> tuple[Floats, Floats]:
    """((c, d), (c,)) centres and widths of the clusters, ms."""
    centre = random.uniform(0.1 * WIDTH, 0.9 * WIDTH, (clusters, dimensions))
    return centre, random.uniform(0.05 * WIDTH, 0.15 * WIDTH, clusters)


def draw_positions(random: Generator, centre: Floats, spread: Floats, nodes: int) -> Floats:
    """(n, d) positions in Gaussian clusters, ms, folded back at the plane's borders.

    Rounded to a tenth of a microsecond, which documents can show.
    """
    import numpy as np

    cluster = random.integers(0, len(centre), nodes)
    position = random.standard_normal((nodes, centre.shape[1]))
    position *= spread[cluster, None]
    position += centre[cluster]
    position %= 2 * WIDTH
    np.minimum(position, 2 * WIDTH - position, out=position)
    position[:, 1:] -= WIDTH / 2
    return np.round(position, 4, out=position)


def draw_capacities(random: Generator, greatest: Floats, heterogeneity: float) -> Floats:
    """(n,) whole tuples/s; ``greatest`` is each node's limit at heterogeneity 0."""
    import numpy as np

    uniform = np.floor(random.random(len(greatest)) * greatest) + 1
    exponential = random.standard_exponential(len(greatest)) * ((1 + greatest) / 2)
    mixed = (1 - heterogeneity) * uniform + heterogeneity * exponential
    return np.asarray(np.clip(np.rint(mixed), 1, CAPACITY_LIMIT))


def draw_output_rates(random: Generator, joins: int) -> Floats:
    """(p,) whole tuples/s: 1 for half of the joins, a long tail for the others, mean 10."""
    import numpy as np

    tail = random.standard_exponential(joins) * (2 * (OUTPUT_RATE - 1))
    selective = random.random(joins) < 0.5
    return np.asarray(np.where(selective, 1.0, 1.0 + np.rint(tail)))


def _names(prefix: str, count: int) -> Strings:
    """(count,) ``n0``, ``n1``, ... as narrow a column as they fit in."""
    import numpy as np

    width = len(str(count - 1))
    return np.strings.add(prefix, np.arange(count).astype(f"U{width}"))
