"""The command, and what it can be told to do."""

from __future__ import annotations

import sys
from typing import Annotated

from advisorchain import __version__
from advisorchain.errors import MissingExtraError

try:
    import typer

    from advisorchain.cli.chat_command import chat
    from advisorchain.cli.conversation_commands import conversations
    from advisorchain.cli.serve_command import serve
    from advisorchain.cli.show_command import show
    from advisorchain.cli.trace_command import trace
except ImportError as error:
    if not error.name or error.name.startswith("advisorchain"):
        raise
    missing = error.name.partition(".")[0]
    serves = sys.argv[1:2] == ["serve"]  # which needs both: not one missing thing at a time
    needed = "advisorchain[cli,server]" if serves else "advisorchain[cli]"
    raise MissingExtraError(f'the command needs `{missing}`: pip install "{needed}"') from error

__all__ = ["app"]

app = typer.Typer(
    name="advisorchain",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,  # plain help, which needs no column of types
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Chat with a model through a chain of advisors, with a memory that lasts.",
)


def _tell_version(wanted: bool) -> None:
    if wanted:
        print(f"advisorchain {__version__}")
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool, typer.Option("--version", callback=_tell_version, is_eager=True, help="Tell the version and exit.")
    ] = False,
) -> None:
    pass


app.command("chat")(chat)
app.command("serve")(serve)
app.command("show")(show)
app.command("trace")(trace)
app.add_typer(conversations, name="conversations")
