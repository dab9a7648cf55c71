"""Runs the joins of Nova's plans on Apache Flink."""
