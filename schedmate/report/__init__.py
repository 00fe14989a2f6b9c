"""Self-contained HTML reports: one file, nothing fetched, readable without JavaScript."""
