"""How fast Nova is: what its developers measure, with pytest-benchmark; see CONTRIBUTING.md."""
