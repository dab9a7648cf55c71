"""Nova (EDBT 2026): Algorithm 1 as the paper has it, and its figures measured again."""
