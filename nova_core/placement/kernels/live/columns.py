"""Columns of the table of pairs: all whole numbers that tell of a pair, in one cache line."""

JOIN, LEFT, RIGHT, LEFT_NODE, RIGHT_NODE, SINK, HOST, MOVED = range(8)
COLUMNS = 8

__all__ = [
    "COLUMNS",
    "HOST",
    "JOIN",
    "LEFT",
    "LEFT_NODE",
    "MOVED",
    "RIGHT",
    "RIGHT_NODE",
    "SINK",
]
