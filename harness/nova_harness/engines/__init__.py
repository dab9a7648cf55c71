"""Engines that plans run with on hosts: Flink, Storm, Spark, and others that packages bring."""
