"""Places and replaces joins in NebulaStream by Nova's plans.

Nothing is in it yet.
"""
