"""Training runs: their data, their folder with metrics and checkpoints, and the loop that can be resumed."""
