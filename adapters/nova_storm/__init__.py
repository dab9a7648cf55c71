"""Places and replaces joins in Apache Storm by Nova's plans.

A scheduler in nimbus puts every executor on the node that the plan says.
"""
