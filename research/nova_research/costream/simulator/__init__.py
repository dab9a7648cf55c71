"""A simulator of placements, which makes traces, and its fit to measured ones."""
