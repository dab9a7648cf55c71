"""Synthetic topologies and workloads for placement problems."""
