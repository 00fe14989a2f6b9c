"""A queue in which schedmate is the scheduler: jobs in SQLite, any bundled policy over a `Board`,
and commands in process groups that cannot outlive their lease."""
