"""`schedmate` and `python -m schedmate`: Ctrl-C is quiet from here on, while modules load too."""

import atexit
import os
import signal
import sys

from schedmate.base.errors import INTERRUPTED

if __name__ == "__main__" and not sys.flags.safe_path:
    # `python -m` looks for modules in the current directory first, which may be a job's repository.
    del sys.path[0]


def main() -> None:
    """Run the command line of `schedmate.cli`."""
    usual = signal.getsignal(signal.SIGINT)
    if usual == signal.default_int_handler:  # else whoever started this has other wishes
        signal.signal(signal.SIGINT, _end)
        # At its very end Python kills itself by this signal if it ever interrupted an exec of text,
        # as the making of a dataclass is, whoever handled that since: the exit code would be lost.
        atexit.register(signal.pthread_sigmask, signal.SIG_BLOCK, {signal.SIGINT})
    try:
        from schedmate.cli import main as run

        signal.signal(signal.SIGINT, usual)
        run()
    except KeyboardInterrupt:
        sys.exit(INTERRUPTED)
    finally:
        if usual == signal.default_int_handler:
            signal.signal(signal.SIGINT, _end)  # what is left is Python's own tidying up


def _end(_signal: int, _frame: object) -> None:
    os._exit(INTERRUPTED)


if __name__ == "__main__":
    main()
