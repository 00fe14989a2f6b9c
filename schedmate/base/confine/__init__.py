"""Work on foreign input in child processes that can be killed.

    with Confinement() as confinement:
        answer = confinement.run("schedmate.readers:extract", request, Limits(wall_s=0.5))

Repositories and logs are written by others, and reading them may stall an interpreter (C code that
holds its lock) or fill the memory. So each job is read in a process of its own, whose limits the
kernel keeps: wall time, CPU time, address space, no core file, no files written and, where the
system allows it, no network. Whatever the input is, the caller has an answer or a
`LimitError` at the deadline. Nothing is imported here: a command that only bounds itself
(`limits.bounded`) needs no sockets.
"""
