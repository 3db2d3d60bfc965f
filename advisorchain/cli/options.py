"""Options that several commands have."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Annotated, Final

import typer

from advisorchain.cli.named_parts import default_memory

__all__ = ["API_KEY_ENV", "Memory", "Ttl", "Yes", "time"]

API_KEY_ENV: Final = "ADVISORCHAIN_API_KEY"
_TIME: Final = re.compile(r"\s*(\d{1,6})\s*([smhdw])\s*", re.IGNORECASE)
_UNITS: Final = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
    "w": timedelta(weeks=1),
}


def time(text: str) -> timedelta:
    """A length of time such as 90s, 15m, 12h, 30d or 2w."""
    found = _TIME.fullmatch(text)
    length = int(found[1]) * _UNITS[found[2].lower()] if found else timedelta(0)
    if not length:
        raise typer.BadParameter("give a number above 0 and a unit: s, m for minutes, h, d, w for weeks, such as 30d")
    return length


Memory = Annotated[
    str | None,
    typer.Option(
        "--memory",
        metavar="PATH|URL",
        envvar="ADVISORCHAIN_MEMORY",
        show_default=False,
        help="Where conversations are kept: the PATH of a SQLite file, sqlite:///PATH, postgresql://USER:PASSWORD@HOST/NAME,"
        " mysql://…, redis://…, mongodb://…, or memory:// for no longer than the command runs. Others on this machine may"
        f" see a password on a command line, not one in the variable. Without it: {default_memory()}",
    ),
]
Ttl = Annotated[
    timedelta | None,
    typer.Option(
        "--ttl",
        metavar="TIME",
        parser=time,
        show_default=False,
        help="Forget a conversation that nobody has written to for so long: 15m, 12h, 30d, 2w. Each conversation keeps what"
        " it was given last; one that was given nothing is never forgotten.",
    ),
]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
