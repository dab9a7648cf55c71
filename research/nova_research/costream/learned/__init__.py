"""A learned cost model: predicts what a placement will do before it runs (Costream, ICDE 2024).

A plan becomes a joint graph of operators and hosts (`graph`, `features`), a small network passes
messages over it (`network`), and an ensemble of trained networks predicts (`model`). Training is
in the package `training`; this package needs numpy only.
"""
