"""The papers that Nova builds on: a folder for each, and `figures`, which they share."""
