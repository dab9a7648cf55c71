"""Commands that this package adds to `nova`, one a file."""
