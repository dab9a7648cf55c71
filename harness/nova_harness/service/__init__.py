"""Jobs that follow the optimizer, started and stopped by clients of `nova serve`."""
