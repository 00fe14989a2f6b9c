"""Snapshots of whole clusters: why idle GPUs cannot be had, and how to win them back.

Section, figure and algorithm numbers in this package are those of the ASI paper, "Heterogeneity at
Hyperscale: Characterization and Scheduling of Large Production AI Clusters at Alibaba" (OSDI'26).
"""
