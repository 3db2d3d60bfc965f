"""The options of `advisorchain show`."""

from __future__ import annotations

from typing import Annotated

import typer

from advisorchain.cli.text import explained, tell
from advisorchain.errors import AdvisorChainError

__all__ = ["show"]


def show(
    chain: Annotated[
        str,
        typer.Argument(
            metavar="CHAIN",
            help="module:attr: a chain or client, or a function that gives one, or an async context manager of one.",
            show_default=False,
        ),
    ],
    mermaid: Annotated[
        bool, typer.Option("--mermaid", help="The onion as a Mermaid flowchart, for a README or a wiki.")
    ] = False,
    svg: Annotated[
        str | None,
        typer.Option("--svg", metavar="FILE", help="Write the onion to a file, as an SVG picture.", show_default=False),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="All of it as JSON.")] = False,
    stream: Annotated[
        bool, typer.Option("--stream/--call", help="Of which of the two the onion is drawn.", show_default="stream")
    ] = True,
    lint: Annotated[
        bool,
        typer.Option(
            "--lint",
            help="Ask the rules whether the order does what the advisors are there for. Exit status 0: it does; 1: a rule"
            " has found something; 2: they could not be asked, as when a module cannot be imported.",
        ),
    ] = False,
    ignore: Annotated[
        list[str] | None, typer.Option("--ignore", metavar="RULE", help="A rule that --lint does not ask. May be repeated.")
    ] = None,
) -> None:
    """Show which advisors a chain has, outermost first: order, name, hooks, what each sees of a tool loop and may do to a
    stream. The model is not asked.

    \b
    advisorchain show myapp:chain
    advisorchain show myapp:chain --lint
    advisorchain show myapp:client --mermaid >> README.md
    advisorchain show myapp:client --svg onion.svg --call
    """  # noqa: D301  click knows a block that is not to be wrapped by its backspace
    if mermaid and as_json:
        raise typer.BadParameter("give --mermaid or --json, not both")
    if mermaid and lint:
        raise typer.BadParameter("give --mermaid or --lint, not both")
    if ignore and not lint:
        raise typer.BadParameter("--ignore is for --lint")
    from advisorchain.cli import show as showing  # here: a command waits for no other's modules

    setting = showing.ShowSetting(
        chain=chain, stream=stream, mermaid=mermaid, json=as_json, svg=svg, lint=lint, ignore=tuple(ignore or ())
    )
    try:
        status = showing.show(setting)
    except AdvisorChainError as error:
        if not lint:
            raise
        tell(f"advisorchain: {explained(error, hint=False)}")
        status = 2  # elsewhere it is 1, which here says that something was found
    if status:
        raise typer.Exit(status)
