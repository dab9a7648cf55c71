"""Experiments and benchmarks over the placement strategies."""
