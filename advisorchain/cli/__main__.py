"""Where the command begins and ends: every error is one line, and an exit status.

0: done. 1: it failed. 2: wrong usage. 130: ended by Ctrl-C.
"""

from __future__ import annotations

import os
import sys

from advisorchain.errors import AdvisorChainError

__all__ = ["main"]


def main() -> None:
    """Run the command with this process's arguments."""
    try:
        from advisorchain.cli.app import app  # here, so that a missing extra is told like every other error

        try:
            app()
        finally:
            sys.stdout.flush()
    except AdvisorChainError as error:
        _fail(" ".join(str(error).split()), 1)
    except KeyboardInterrupt:
        sys.exit(130)
    except BrokenPipeError:
        # Who read our output has left, which is no fault; Python's own flush at exit must not complain.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        sys.exit(1)


def _fail(message: str, status: int) -> None:
    print(f"advisorchain: {message}", file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()
