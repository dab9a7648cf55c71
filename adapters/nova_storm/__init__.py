"""Places and replaces joins in Apache Storm by Nova's plans.

Nothing is in it yet.
"""
