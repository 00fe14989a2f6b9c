"""The Log Classifier: what kind of line a template is (SchedMate paper, section 3.3)."""

from schedmate.logparse.classify.classifier import CATEGORIES, LineKinds, LogClassifier, Verdict

__all__ = ["CATEGORIES", "LineKinds", "LogClassifier", "Verdict"]
