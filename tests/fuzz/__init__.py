"""Hostile input for every command that reads a file, an option with a number or a request.

`python -m tests.fuzz --help` tells how to run it by hand.
"""
