"""Placing queries of filters, aggregates and joins (paper, section 3.6)."""
