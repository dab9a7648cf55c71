"""Whole queries over readings: estimates, expected results, and a workload of experiments."""
