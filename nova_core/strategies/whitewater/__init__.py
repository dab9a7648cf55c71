"""WhiteWater: configurations of queries that keep up with the fastest input (IEEE TC 2007).

A configuration is an order of a query's operators and a node for each of them. Its worth is the
profiled input throughput Q^p: by what factor the expected rates of all inputs can grow until a
node, a memory or a link is full. `search` looks for the best one.
"""

from nova_core.strategies.whitewater.query import Network, ProfiledOperator, ProfiledQuery
from nova_core.strategies.whitewater.search import METHODS, SearchParameters, Solution, optimize

__all__ = [
    "METHODS",
    "Network",
    "ProfiledOperator",
    "ProfiledQuery",
    "SearchParameters",
    "Solution",
    "optimize",
]
