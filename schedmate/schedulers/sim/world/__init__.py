"""The simulated world besides jobs and policy: progress, interference and failures."""
