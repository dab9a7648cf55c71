"""What adapters of engines share."""
