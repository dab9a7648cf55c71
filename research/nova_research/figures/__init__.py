"""What published figures share: their form, their inputs, and `nova reproduce`."""
