"""Training: one optimiser step, the moving average of the weights, the loop around them. Knows no files."""
