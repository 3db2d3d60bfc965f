"""The options of `advisorchain conversations`."""

from __future__ import annotations

import sys
from datetime import timedelta
from typing import Annotated

import typer

from advisorchain.cli import conversations as kept
from advisorchain.cli.interrupts import Interrupts
from advisorchain.cli.options import Memory, Ttl, Yes, time
from advisorchain.cli.text import tell, typed
from advisorchain.cli.transfer import export_lines, import_lines

__all__ = ["conversations"]

conversations = typer.Typer(
    no_args_is_help=True,
    rich_markup_mode=None,
    help="List, show, copy, export, import, delete and prune what was said.",
)

Id = Annotated[str, typer.Argument(metavar="ID", help="A conversation id.", show_default=False)]
NewId = Annotated[str, typer.Argument(metavar="NEW", help="An id that no conversation has.", show_default=False)]
Prefix = Annotated[str, typer.Option(metavar="TEXT", help="Only ids that begin with this.", show_default=False)]


@conversations.command("list")
def list_conversations(memory: Memory = None, prefix: Prefix = "") -> None:
    """List the conversations: when they were last used, how many messages they have, their ids, and when they expire.

    They are used last when something is stored. An import, or putting back a snapshot, counts as that.
    """
    kept.list_all(memory, prefix)


@conversations.command()
def show(
    id: Id,
    memory: Memory = None,
    numbers: Annotated[bool, typer.Option("--numbers", help="With each message's number, for `fork --at`.")] = False,
) -> None:
    """Show what was said in a conversation."""
    kept.show(memory, id, numbers=numbers)


@conversations.command()
def rename(id: Id, new: NewId, memory: Memory = None) -> None:
    """Give a conversation another id."""
    kept.rename(memory, id, new)


@conversations.command()
def fork(
    id: Id,
    new: NewId,
    memory: Memory = None,
    at: Annotated[
        int | None,
        typer.Option(min=1, metavar="N", help="Only up to and with message number N; `show --numbers` tells the numbers."),
    ] = None,
) -> None:
    """Copy a conversation, or its beginning, to a new id, to go on from there another way.

    \b
    advisorchain conversations fork trip trip-by-train --at 6
    advisorchain chat --conversation trip-by-train
    """  # noqa: D301  click knows a block that is not to be wrapped by its backspace
    kept.fork(memory, id, new, at)


@conversations.command()
def export(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Conversation ids; none: all.")] = None,
    memory: Memory = None,
    output: Annotated[
        str | None, typer.Option("--output", "-o", metavar="FILE", help="Write to this file, not to standard output.")
    ] = None,
) -> None:
    """Export conversations as JSON Lines: one message a line, with its conversation id, place, time and turn.

    Each line also tells after how many seconds without a new message its conversation expires (ttl; null: never).
    """
    export_lines(memory, tuple(ids or ()), output)


@conversations.command("import")
def import_(
    file: Annotated[str, typer.Argument(metavar="FILE", help="What `export` wrote; -: standard input.", show_default=False)],
    memory: Memory = None,
    replace: Annotated[
        bool, typer.Option("--replace", help="Put conversations in the place of those of the same id.")
    ] = False,
    ttl: Ttl = None,
) -> None:
    """Import conversations from JSON Lines, with their times and turns.

    When they expire is told by the file, or by --ttl for all of them. Their time begins with the import, and so does what
    `list` tells as last used, by which `prune --older-than` goes: an old conversation counts as new.

    All lines are checked first: when one is wrong, or a conversation is there already, nothing is imported. Then each
    conversation is stored whole or not at all.

    \b
    advisorchain conversations export -o said.jsonl
    advisorchain conversations import said.jsonl --memory postgresql://localhost/chats
    """  # noqa: D301
    import_lines(memory, file, replace=replace, ttl=ttl)


@conversations.command()
def delete(
    ids: Annotated[list[str] | None, typer.Argument(metavar="ID", help="Conversation ids.", show_default=False)] = None,
    memory: Memory = None,
    prefix: Annotated[
        str | None, typer.Option(metavar="TEXT", help="Also all conversations whose ids begin with this.")
    ] = None,
    yes: Yes = False,
) -> None:
    """Delete conversations for good."""
    if not kept.delete(memory, tuple(ids or ()), prefix, ask=_asking("deleted", yes=yes)):
        raise typer.Exit(1)


@conversations.command()
def prune(
    memory: Memory = None,
    older_than: Annotated[
        timedelta | None,
        typer.Option(
            metavar="TIME",
            parser=time,
            show_default=False,
            help="Also those that nobody has written to for so long: 15m, 12h, 30d, 2w.",
        ),
    ] = None,
    prefix: Prefix = "",
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only tell what would be removed.")] = False,
    yes: Yes = False,
) -> None:
    """Remove old conversations for good: those that have expired (--ttl), and with --older-than others.

    \b
    advisorchain conversations prune --older-than 30d --dry-run
    advisorchain conversations prune --older-than 30d --yes
    """  # noqa: D301
    ask = None if dry_run or older_than is None else _asking("removed", yes=yes)
    if not kept.prune(memory, older_than, prefix, dry_run=dry_run, ask=ask):
        raise typer.Exit(1)


def _asking(done: str, *, yes: bool) -> kept.Ask:
    if yes:
        return None
    if sys.stdin is None or not sys.stdin.isatty():
        tell(f"advisorchain: there is no terminal to ask at, so nothing was {done}; give --yes")
        raise typer.Exit(2)
    return _confirm


def _confirm(question: str) -> bool:
    try:
        with Interrupts() as interrupts, interrupts.raised():
            tell(f"{question} [y/N]: ", end="")
            return typed(input()).strip().lower() in ("y", "yes")
    except EOFError:
        tell("")
        return False
    except KeyboardInterrupt:
        tell("")
        raise
