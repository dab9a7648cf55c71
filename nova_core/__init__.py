"""Nova: placement, replication and partitioning of stream joins."""
