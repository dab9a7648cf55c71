"""The commands of ``nova``, one per file.

Importing one must stay cheap, because `nova --help` imports them all: whatever needs numpy is
imported inside the functions.
"""
