"""Columns of the table of pairs: all whole numbers that tell of a pair, in one cache line."""

LEFT, RIGHT, LEFT_NODE, RIGHT_NODE, SINK, HOST, MOVED, TOUCHED = range(8)

__all__ = [
    "HOST",
    "LEFT",
    "LEFT_NODE",
    "MOVED",
    "RIGHT",
    "RIGHT_NODE",
    "SINK",
    "TOUCHED",
]
