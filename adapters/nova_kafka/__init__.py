"""Kafka between sensors and engines: its broker, its topics, and what waiting in it costs."""
