"""The Metric Tracker: how fast a job runs and when it will end (SchedMate paper, section 3.2)."""
