"""Running jobs that follow the live optimizer: what is sensed, decided, and handed over."""
