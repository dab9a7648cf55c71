"""Costream (ICDE 2024): placement by a learned cost model, and what trains it."""
