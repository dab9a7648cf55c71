"""Hosts to run engines on, real ones over SSH or a virtual rack on one machine.

Nothing is in it yet.
"""
