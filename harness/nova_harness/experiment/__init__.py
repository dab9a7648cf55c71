"""Experiments: strategies side by side on hosts, from a YAML file to a folder of results."""
