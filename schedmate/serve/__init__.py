"""The service: schedmate's answers over HTTP, for agents and people beside a running cluster."""
