"""Self-contained HTML reports: one file, nothing fetched, readable without JavaScript."""

from schedmate.report.triage import triage_page

__all__ = ["triage_page"]
