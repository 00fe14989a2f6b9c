"""What the tools that test nodes print, and whether that speaks against a node.

A test that did not run, was cut off, or complains only of configuration is `unclear`: it takes no
node out of service, and it clears none.
"""

from schedmate.recovery.health.verdict import Complaint, Health, Reader, assess

__all__ = ["Complaint", "Health", "Reader", "assess"]
