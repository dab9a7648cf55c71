"""WhiteWater: configurations of queries that keep up with the fastest input (IEEE TC 2007).

A configuration is an order of a query's operators and a node for each of them. Its worth is the
profiled input throughput Q^p: by what factor the expected rates of all inputs can grow until a
node, a memory or a link is full. `search` looks for the best one.
"""
