"""Which nodes may host what: the requirements of operators, as the capacity tree asks for them."""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from nova_core.errors import InfeasibleError, ProblemError
from nova_core.model.graph import Graph
from nova_core.model.problem import Bools, Ints
from nova_core.placement.kernels.capacity_tree import MOST_REQUIREMENTS


class AbleHosts(NamedTuple):
    """Hosts, and what operators require of them.

    Attributes:
        hosts: (n,) nodes that may host any operator.
        needs: (b,) requirement of each operator, counted from 1, 0 for none; (0,) if there is none.
        meets: (r, n) which nodes meet each requirement; None if there is none.
    """

    hosts: Bools
    needs: Ints
    meets: Bools | None


def able_hosts(graph: Graph, hosts: Bools, name: str) -> AbleHosts:
    """Requirements of operators on their hosts.

    A node that meets no operator's requirement is not a host. A requirement that all remaining
    hosts meet is dropped, so a single requirement costs nothing.

    Args:
        graph: what is placed.
        hosts: (n,) nodes that may host, regardless of requirements.
        name: of the problem, which errors begin with.

    Raises:
        InfeasibleError: when no host meets a requirement.
        ProblemError: for more requirements than there are bits.
    """
    nothing = np.empty(0, np.int64)
    required, of = graph.requirements, graph.requirement[graph.bodies]
    if not required.rules or not len(of):
        return AbleHosts(hosts, nothing, None)
    for row in np.unique(of[of >= 0]).tolist():
        if not (required.met[row] & hosts).any():
            needed = float(graph.required[graph.bodies[of == row]].sum())
            raise InfeasibleError(
                f"{name}: there is no worker {required.text(row)}, which operators that need "
                f"{needed:g} tuples/s require",
                needed,
            )
    some = hosts & required.able(of)
    distinct = np.flatnonzero(~required.met[:, some].all(axis=1))
    if len(distinct) > MOST_REQUIREMENTS:
        raise ProblemError(
            f"{name}: operators have {len(distinct)} different requirements; at most "
            f"{MOST_REQUIREMENTS} are supported"
        )
    if not len(distinct):
        return AbleHosts(some, nothing, None)
    number = np.zeros(len(required.rules) + 1, np.int64)  # the last is for -1, no requirement
    number[distinct] = np.arange(len(distinct)) + 1
    return AbleHosts(some, number[of], required.met[distinct])
