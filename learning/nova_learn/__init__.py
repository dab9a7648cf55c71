"""Training of the learned cost model, its baselines and a simulator of placements."""
