"""The options of `advisorchain serve`."""

from __future__ import annotations

from typing import Annotated

import typer

from advisorchain.cli.options import API_KEY_ENV, Memory, Ttl

__all__ = ["serve"]


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
            f" Otherwise {API_KEY_ENV}, if it is set.",
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
    from advisorchain.cli import serve as serving  # here: a command waits for no other's modules

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
