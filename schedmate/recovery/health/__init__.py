"""Parsers of node diagnostics, with a verdict on each node.

A test that did not run, was interrupted, or complains only of configuration is `unclear`: it
neither takes a node out of service nor clears it.
"""

from schedmate.recovery.health.verdict import Complaint, Health, Reader, assess

__all__ = ["Complaint", "Health", "Reader", "assess"]
