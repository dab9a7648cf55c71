"""Measured latencies, filtered on Spark to one for each pair of nodes."""
