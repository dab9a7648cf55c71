"""A topology with several parents per node and a query, for following NebulaStream's documents.

::

              0  sink
             / \\
            1   2
           / \\ / \\
          3   4   5
           \\ / \\ / \\
            6   7   8
"""

from __future__ import annotations

from nova_research.nebulastream.hierarchy import Hierarchy
from nova_research.nebulastream.placing import Resources
from nova_research.operators import Operator, OperatorGraph

TOPOLOGY = Hierarchy(0, {1: [0], 2: [0], 3: [1], 4: [1, 2], 5: [2], 6: [3, 4], 7: [4, 5], 8: [5]})

# Logical source A has physical sources on nodes 6 and 7, B on 7 and 8.
STREAM_A, STREAM_B = [6, 7], [7, 8]

# Source A on 6, filtered; source A on 7, filtered; both united; the sink. Every operator takes 1.
SOURCE_6, FILTER_6, SOURCE_7, FILTER_7, UNION, SINK = range(6)
QUERY = OperatorGraph(
    [
        Operator("source on 6", "source", (), 8.0, 6, need=1.0),
        Operator("filter of 6", "filter", (SOURCE_6,), 4.0, need=1.0),
        Operator("source on 7", "source", (), 6.0, 7, need=1.0),
        Operator("filter of 7", "filter", (SOURCE_7,), 3.0, need=1.0),
        Operator("union", "join", (FILTER_6, FILTER_7), 7.0, need=1.0),
        Operator("the sink", "sink", (UNION,), 0.0, 0, need=1.0),
    ]
)


def offering(**room: float) -> Resources:
    """Resources of nodes, ``n6=2`` for two on node 6; others have none."""
    return Resources([room.get(f"n{node}", 0.0) for node in range(9)])
