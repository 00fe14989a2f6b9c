"""The simulated world besides jobs and policy: how fast jobs progress, and how they fail."""
