"""Domain generalization without excess empirical risk, for PyTorch."""
