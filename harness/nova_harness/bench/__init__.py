"""How fast Nova is on this machine: ``nova bench``; developers have more in ``benchmarks/``."""
