"""What trades time against quality in placement: measured, and no part of any definition.

Here rather than beside their uses, so that kernels are compiled anew when one changes.
"""

from __future__ import annotations

# --- the first pass -------------------------------------------------------------------------------

# Hosts whose costs are compared for each join, and the same for few joins or before refinement. One
# that is not refined takes the nearest with room unseen: a seventh less time for 1 % of the
# objective.
NEARBY = 2
NEARBY_REFINED = 8
# Up to this many joins count as few.
FEW_JOINS = 1000
# A placement of many joins without refinement looks less exactly (`capacity_tree.Search.exact`): at
# a million nodes an eighth less time for at most 0.05 % of the objective.
NEARLY = 1 / 1.05
# Joins whose columns fit the processor's cache in any order.
IN_CACHE = 4096
# Joins that must share a virtual position for a tree around it to pay, and how many such trees
# there may be in live placement: each costs every change of a host's room an update.
HUB_JOINS = 1000
HUBS = 4
# Hosts that are looked at when what fits nowhere overloads one.
SPREAD_NEARBY = 16

# --- refinement -----------------------------------------------------------------------------------

# Refinement is the default up to this many joins. For 300,000, of a million nodes, it takes four
# times as long as all else, for 4 % of the objective.
REFINED_JOINS = 100_000
# Orders tried on small problems: as many as together place this many joins, and no more than these.
JOINS_AFFORDED = 200
MOST_STARTS = 24
# Spread of the factors that shake the order of further starts.
SHAKE = 0.5
# Candidates of each join, with many joins and with few.
CANDIDATES = 32
CANDIDATES_FEW = 64
# Candidates of all joins together when others must make room for what fits nowhere: first the near
# ones, then as many as 1.2 GB hold, which is every node for 10,000 joins on as many nodes.
LAST_CANDIDATES = 10_000_000, 100_000_000
ROUNDS = 3
# A round that gains less than this share of the total is the last.
WORTHWHILE = 1e-4
# Residents of a slot that may make way, the latest first: without a limit, thousands of small joins
# on few nodes would take time quadratic in them. Chains look at the square of theirs.
RESIDENTS_TRIED = 16
RESIDENTS_TRIED_DEEP = 8
# Last slots of such chains that are looked at for each item, and for all of a round together where
# few items share it. Where every node is a candidate, those of one item are a billion.
DEEP_EFFORT = 300_000
DEEP_EFFORT_IN_ALL = 2_000_000_000
# Gains below this are rounding, not improvement (ms).
EPSILON = 1e-9
# Cost of an unplaced tuple/s (ms): beyond any latency, yet far from losing ms to rounding.
UNPLACED_COST = 1e6

# --- cuts -----------------------------------------------------------------------------------------

# Joins tried for cuts: all of a small problem, one in 48 of a large one.
CUTS_TRIED = 1000
CUTS_TRIED_SHARE = 48
# Positions tried along each input; a grid of at most this many partitions a side is searched whole.
CUT_POSITIONS = 32
# Hosts whose costs are compared for a piece, and candidates of each.
CUT_NEARBY = 4
PIECE_CANDIDATES = 16

# --- live placement -------------------------------------------------------------------------------

# A join goes to the host nearest to its virtual position. After 10,000 random events on 10,000
# nodes the objective is 1.0226 times that of a full optimization; the cheapest of the two nearest
# gave 1.0211, of four 1.0210, but a sink's move took 6 % and 30 % longer.
#
# The most that are looked at when links decide.
MOST_NEARBY = 4096
# A host with this much less than is needed still has room: rounding, far below the tolerance.
SLACK = 1e-10
# Positions tried along each input when a join is cut in two.
LIVE_CUT_POSITIONS = 8
# Joins whose memory stays in the nearer caches together, and levels of a tree that a host's new
# room is likely to change.
AHEAD = 32
LEVELS_AHEAD = 4
# Of a rebalance: near hosts that are looked at, and residents of each that may make way. With 8 and
# 4, after 300 random events on 80 nodes, one objective in fifteen stayed more than 1.025 times that
# of a plan from scratch; with these none in sixty, for three times the time.
SWAPS = 32
SWAP_RESIDENTS = 8
# Of a query: hosts near each virtual position, and candidates of each operator in all.
TREE_NEARBY = 6
TREE_CANDIDATES = 24
