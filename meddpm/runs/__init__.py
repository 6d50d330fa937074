"""A run of the workflow: what it planned, what failed in it and why, the state of every cell."""
