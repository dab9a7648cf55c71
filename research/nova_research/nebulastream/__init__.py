"""NebulaStream's placements (project documentation, query placement): on a hierarchy of nodes."""
