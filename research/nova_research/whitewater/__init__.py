"""WhiteWater: configurations of queries that keep up with the fastest input (IEEE TC 2007).

A configuration is an order of a query's operators and a node for each of them. Its worth is the
profiled input throughput Q^p: by what factor the expected rates of all inputs can grow until a
node, a memory or a link is full. `search` looks for the best one.
"""

from nova_research.whitewater.query import Network as Network
from nova_research.whitewater.query import ProfiledOperator as ProfiledOperator
from nova_research.whitewater.query import ProfiledQuery as ProfiledQuery
from nova_research.whitewater.search import METHODS as METHODS
from nova_research.whitewater.search import SearchParameters as SearchParameters
from nova_research.whitewater.search import Solution as Solution
from nova_research.whitewater.search import optimize as optimize
