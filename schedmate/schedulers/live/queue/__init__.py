"""A queue of schedmate's own, where it is the scheduler: jobs in SQLite, any bundled policy over a
`Board`, and commands in process groups that cannot outlive their lease."""
