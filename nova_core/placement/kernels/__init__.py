"""Compiled kernels (numba): the loops that outgrow numpy. Orchestration lives one level up."""
