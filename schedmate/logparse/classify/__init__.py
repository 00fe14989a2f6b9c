"""The Log Classifier: what kind of line a template is (SchedMate paper, section 3.3)."""

from schedmate.logparse.classify.classifier import CATEGORIES, LogClassifier, Verdict
from schedmate.logparse.classify.lines import LineKinds

__all__ = ["CATEGORIES", "LineKinds", "LogClassifier", "Verdict"]
