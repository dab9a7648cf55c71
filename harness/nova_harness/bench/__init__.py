"""How fast Nova is on this machine: ``nova bench``, a file for each benchmark."""
