"""Places and replaces joins in Apache Flink by Nova's plans.

Nothing is in it yet.
"""
