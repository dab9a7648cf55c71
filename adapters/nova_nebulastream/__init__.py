"""Places and replaces joins and queries in NebulaStream by Nova's plans."""
