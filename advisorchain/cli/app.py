"""The command's options, in one place."""

from __future__ import annotations

import sys
from typing import Annotated

from advisorchain import __version__
from advisorchain.errors import MissingExtraError

try:
    import typer

    from advisorchain.cli import chat as chatting
    from advisorchain.cli import serve as serving
    from advisorchain.cli.conversation_commands import conversations
    from advisorchain.cli.options import Memory, Ttl
    from advisorchain.cli.show_command import show as show_command
    from advisorchain.cli.trace_command import trace as trace_command
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
app.add_typer(conversations, name="conversations")


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


@app.command()
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


@app.command()
def serve(
    chain: Annotated[
        str | None,
        typer.Argument(
            metavar="CHAIN",
            help="module:attr: a chain, or a function that gives one, or an async context manager of one. Without it: a"
            " model with the memory that `chat` has.",
            show_default=False,
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            metavar="MODEL",
            help="Without CHAIN: the model, as `chat` takes it. Otherwise the small local one.",
            show_default=False,
        ),
    ] = None,
    memory: Memory = None,
    ttl: Ttl = None,
    host: Annotated[
        str, typer.Option(metavar="HOST", help="Where to listen. One that others can reach needs a key.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="0: any free one.")] = 8000,
    api_key_env: Annotated[
        str | None,
        typer.Option(
            metavar="VARIABLE",
            help="The environment variable that holds the key which clients have to send."
            f" Otherwise {serving.API_KEY_ENV}, if it is set.",
            show_default=False,
        ),
    ] = None,
    model_name: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="What clients call the chain. Otherwise the name that it was built with, or else its attr.",
            show_default=False,
        ),
    ] = None,
    max_body: Annotated[
        int | None,
        typer.Option(min=1, metavar="BYTES", help="How large a request may be. Otherwise 10 MB.", show_default=False),
    ] = None,
    max_streams: Annotated[
        int | None,
        typer.Option(
            min=1, metavar="N", help="How many answers may be under way at once. Otherwise 256.", show_default=False
        ),
    ] = None,
    allow_origin: Annotated[
        list[str] | None,
        typer.Option(
            metavar="ORIGIN", help="A web page that may ask from a browser: https://chat.example.org, or *. May be repeated."
        ),
    ] = None,
    grace: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="How long answers under way may take to end, once stopped.")
    ] = 30.0,
    debug: Annotated[bool, typer.Option("--debug", help="Show on stderr where an error came from, as a traceback.")] = False,
) -> None:
    """Serve a chain to OpenAI clients and chat pages: /v1/chat/completions and /v1/models.

    A request names its conversation in the header X-Conversation-Id, or in metadata.conversation_id, and is remembered. One
    that names none is answered from the messages that it carries.

    Ctrl-C or SIGTERM lets the answers under way end; once more interrupts them, and what their readers saw is kept.

    \b
    advisorchain serve
    advisorchain serve myapp:chain --port 9000
    curl http://127.0.0.1:9000/v1/chat/completions -H "Content-Type: application/json" \\
      -d '{"messages": [{"role": "user", "content": "hi"}]}'
    """  # noqa: D301  click knows a block that is not to be wrapped by its backspace
    setting = serving.ServeSetting(
        chain=chain,
        model=model,
        memory=memory,
        ttl=ttl,
        host=host,
        port=port,
        api_key_env=api_key_env,
        model_name=model_name,
        max_body=max_body,
        max_streams=max_streams,
        allow_origins=tuple(allow_origin or ()),
        grace=grace,
        debug=debug,
    )
    serving.serve(setting)


app.command("show")(show_command)
app.command("trace")(trace_command)
