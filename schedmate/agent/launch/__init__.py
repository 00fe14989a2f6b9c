"""Launch command + repository -> `LaunchPlan`. Nothing is run."""
