"""SBON (stream-based overlay networks, ICDE 2006): placement by network usage."""
