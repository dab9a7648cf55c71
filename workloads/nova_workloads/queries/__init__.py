"""Whole queries over readings: estimates, what must come out, and a workload of experiments."""
