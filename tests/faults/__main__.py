"""Writers that are killed and servers that are restarted, and what is left of the turns that were acknowledged.

    python -m tests.faults                             8 writers, 1,000 turns each, 50 conversations, on every store
    python -m tests.faults --store postgresql --kills 200

For each store a server of our own is started: its data in a temporary folder, a free port. Writers append turns, and try
again with the same turn id until the store acknowledges. They are killed with SIGKILL at random moments, and started again
where their record of acknowledgements ends, while the server is ended again and again: orderly; with SIGKILL; at once,
without putting anything in order. Then everything is read and compared with the records. SQLite has no server: there only
writers die. Not shown is what a machine loses with its power: that is up to the stores' own settings, which stay as they are
delivered, and for Redis are an append-only file and `appendfsync always`.

Status 1: a fault was found; 3: a store's program is not on this machine.
"""

from __future__ import annotations

import argparse
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from ._check import FAULTS
from ._run import Figures, Run
from ._servers import NoServerError
from ._stores import BROKEN, STORES, VOLATILE


def main() -> int:
    options = _options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers are stopped, folders removed
    found: dict[str, Figures] = {}
    missing = 0
    for name in options.store or STORES:
        try:
            found[name] = _run(options, name)
        except NoServerError as error:
            print(f"{name}: not run: {error}", flush=True)
            missing += 1
    if found:
        _print(found)
    return 1 if any(figures.faults for figures in found.values()) else 3 if missing else 0


def _options() -> argparse.Namespace:
    about, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=about, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False
    )
    add = parser.add_argument
    add("--store", action="append", choices=STORES, help="one of these; may be given again; without it all of them")
    add("--writers", type=_positive, default=8, metavar="N", help="processes that write at the same time (8)")
    add("--turns", type=_positive, default=1000, metavar="N", help="turns of each writer (1000)")
    add("--conversations", type=_positive, default=50, metavar="N", help="over how many conversations (50)")
    add("--kills", type=int, default=60, metavar="N", help="writers killed while the server is up (60)")
    add("--restarts", type=int, default=3, metavar="N", help="of the server: orderly, hard, immediate, and again (3)")
    add("--patience", type=float, default=60.0, metavar="SECONDS", help="for which a turn is tried again (60)")
    add("--seed", type=int, default=5, metavar="N", help="of turns and moments (5)")
    add(
        "--broken",
        choices=(*BROKEN, VOLATILE),
        help=f"a store that breaks the contract, to see that it is found; {VOLATILE}: a server that acknowledges before it"
        " has written, which is restarted with SIGKILL only",
    )
    options = parser.parse_args()
    if options.broken == VOLATILE and not all(STORES[name].server for name in options.store or STORES):
        parser.error(f"`--broken {VOLATILE}` is for stores with a server; choose them with `--store`")
    return options


def _positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return number


def _run(options: argparse.Namespace, name: str) -> Figures:
    folder = Path(tempfile.mkdtemp(prefix="advisorchain-faults-"))
    folder.chmod(0o711)  # a server that runs as another user has its data below
    try:
        figures = Run(options, STORES[name], folder)()
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    if sys.stderr.isatty():
        sys.stderr.write("\r\033[K")
    print(f"{name}: {'; '.join(f'{count} {fault}' for fault, count in figures.faults.items()) or 'no faults'}", flush=True)
    for example in figures.examples:
        print(f"  {example}", flush=True)
    return figures


def _print(found: dict[str, Figures]) -> None:
    columns = list(found.values())
    rows = [("", *found)]
    rows += [(name, *(figures.done[name] for figures in columns)) for name in columns[0].done]
    rows += [(fault, *(str(figures.faults[fault]) for figures in columns)) for fault in FAULTS]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    for first, *rest in rows:
        print(first.ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(rest, widths[1:], strict=True)), sep="  ")


if __name__ == "__main__":
    sys.exit(main())
