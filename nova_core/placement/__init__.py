"""Nova's three phases: virtual positions, partitioning, physical assignment."""
