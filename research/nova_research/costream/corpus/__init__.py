"""A corpus of executed plans: random queries on random hardware, and their results."""
