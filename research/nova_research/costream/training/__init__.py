"""Traces of executed plans, training of the learned cost model on them, and its baselines."""
