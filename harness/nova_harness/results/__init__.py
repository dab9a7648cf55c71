"""Folders of runs: what is in their files, how they are written and read."""
