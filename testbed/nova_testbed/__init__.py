"""Hosts to run engines on: real ones over SSH, or a virtual rack on one Linux machine.

`nova_testbed.inventory` says which hosts and links there are to be, `nova_testbed.rack` makes
virtual ones, `nova_testbed.hosts` talks to either kind.
"""
