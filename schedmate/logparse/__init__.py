"""Job logs: lines to templates to classes to `Progress` or `Diagnosis`."""
