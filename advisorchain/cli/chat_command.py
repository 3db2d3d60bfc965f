"""The options of `advisorchain chat`."""

from __future__ import annotations

from typing import Annotated

import typer

from advisorchain.cli.options import Memory, Ttl

__all__ = ["chat"]


def chat(
    prompt: Annotated[
        str | None,
        typer.Argument(metavar="PROMPT", help="Answer this and end. Standard input is not read then.", show_default=False),
    ] = None,
    memory: Memory = None,
    ttl: Ttl = None,
    conversation: Annotated[str, typer.Option(metavar="ID", help="Which conversation to go on with.")] = "default",
    model: Annotated[
        str,
        typer.Option(
            metavar="MODEL",
            help="gguf: the small local model; gguf:FILE: another one; openai:NAME, anthropic:NAME: a provider's (its"
            " key is in OPENAI_API_KEY or ANTHROPIC_API_KEY); module:attr: any chat model or function.",
        ),
    ] = "gguf",
    advisor: Annotated[
        list[str] | None, typer.Option(metavar="module:attr", help="An advisor to add to the chain. May be repeated.")
    ] = None,
    tools: Annotated[
        list[str] | None,
        typer.Option(
            "--tools",
            metavar="module:attr",
            help="Tools for the model: a function, what @tool made of one, or a list of them. May be repeated. One that"
            " needs a person's yes is asked for here.",
        ),
    ] = None,
    mcp: Annotated[
        list[str] | None,
        typer.Option(
            "--mcp",
            metavar="SERVER",
            help="Tools of an MCP server: a command that starts one, in quotes, or a URL. May be repeated. Each call asks"
            " for a yes; --yes goes on without.",
        ),
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", help="Run the tools of --mcp without asking.")] = False,
    system: Annotated[str | None, typer.Option(metavar="TEXT", help="What the model is told about its task.")] = None,
    window: Annotated[int, typer.Option(min=1, metavar="N", help="How many messages the model sees at most.")] = 20,
    timeout: Annotated[
        float | None, typer.Option(min=0.001, metavar="SECONDS", help="How long one answer may take.")
    ] = None,
    trace: Annotated[
        bool, typer.Option("--trace", help="After each answer, show on stderr which advisor ran when, and for how long.")
    ] = False,
    debug: Annotated[bool, typer.Option("--debug", help="Show on stderr where an error came from, as a traceback.")] = False,
) -> None:
    """Chat in the terminal. The conversation is remembered for the next time.

    Ctrl-C stops an answer; what you have seen of it is kept. Ctrl-D, or Ctrl-C at the prompt, ends the chat.

    For one answer, give a PROMPT, or a pipe, whose text is the prompt: echo "hi" | advisorchain chat
    """
    from advisorchain.cli import chat as chatting  # here: a command waits for no other's modules

    setting = chatting.Setting(
        prompt=prompt,
        model=model,
        advisors=tuple(advisor or ()),
        tools=tuple(tools or ()),
        mcp=tuple(mcp or ()),
        yes=yes,
        memory=memory,
        ttl=ttl,
        window=window,
        conversation=conversation,
        system=system,
        timeout=timeout,
        trace=trace,
        debug=debug,
    )
    chatting.chat(setting)
