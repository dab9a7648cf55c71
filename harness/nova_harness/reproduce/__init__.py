"""Published figures and tables again: each is one file, found through ``nova.figures``."""
