"""The Metadata Extractor of the SchedMate paper (section 3.1, Figures 5 and 6): a ReAct agent.

A model reads the repository with `file_tree` and `file_read` and answers with findings, each with
the file and line that hold it. It proposes; `citations` checks every finding against the file, and
`extractor` decides what of it enters the metadata. What static analysis is sure of is never
touched.
"""
