"""Large models: how to split one over GPUs, and how fast and how large each split is."""
