"""Columns of the table of pairs: all whole numbers that tell of a pair, in one cache line."""

LEFT, RIGHT, LEFT_NODE, RIGHT_NODE, SINK, HOST, MOVED, TOUCHED = range(8)
