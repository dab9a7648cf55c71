"""Hosts to run engines on: real ones over SSH, or a virtual rack on one Linux machine.

`nova_testbed.inventory` describes hosts and links, `nova_testbed.rack` creates virtual hosts,
`nova_testbed.hosts` connects to either kind.
"""
