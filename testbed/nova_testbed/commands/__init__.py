"""The commands ``nova testbed ...``."""
