"""What is simulated beside jobs and policy: how fast jobs progress, and how things fail."""
