"""Where the command begins and ends: every error is one line, and an exit status.

0: done. 1: it failed; of `show --lint`: a rule has found something. 2: wrong usage; of `show --lint` also: it failed.
130: ended by Ctrl-C.
"""

from __future__ import annotations

import errno
import os
import signal
import sys
from typing import Final

from advisorchain.errors import AdvisorChainError

__all__ = ["main"]


_FULL: Final = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def main() -> None:
    """Run the command with this process's arguments."""
    try:
        status = _run()
    except KeyboardInterrupt:
        status = 130
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # all is done: Python's own end must not complain of Ctrl-C
    sys.exit(status)


def _run() -> int | str | None:
    try:
        from advisorchain.cli.app import app  # here, so that a missing extra is told like every other error
        from advisorchain.cli.text import reconfigured

        reconfigured(sys.stdout, errors="replace")  # what is said and what is named may have letters that it has not
        try:
            app()
        finally:
            sys.stdout.flush()
    except SystemExit as ended:
        return ended.code
    except AdvisorChainError as error:
        from advisorchain.cli.text import explained, tell

        tell(f"advisorchain: {explained(error, hint=False)}")
        return 1
    except BrokenPipeError:
        # Who read our output has left, which is no fault; Python's own flush at exit must not complain.
        _give_up_output()
        return 1
    except OSError as error:
        if error.errno not in _FULL:
            raise
        from advisorchain.cli.text import tell

        tell(f"advisorchain: the output cannot be written: {os.strerror(error.errno)}")
        _give_up_output()
        return 1
    return 0


def _give_up_output() -> None:
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


if __name__ == "__main__":
    main()
