"""Finding past jobs like a new one, and estimating from them (SchedMate paper, section 3.1)."""
