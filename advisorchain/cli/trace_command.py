"""The options of `advisorchain trace`."""

from __future__ import annotations

from typing import Annotated

import typer

__all__ = ["trace"]


def trace(
    source: Annotated[
        str,
        typer.Argument(
            metavar="FILE|URL",
            help="A file of spans, -: standard input; or a URL to listen at, as http://127.0.0.1:4318.",
            show_default=False,
        ),
    ],
    last: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The newest N traces of a file; otherwise 3.", show_default=False)
    ] = None,
    slowest: Annotated[
        int | None, typer.Option(min=1, metavar="N", help="The slowest N traces of a file.", show_default=False)
    ] = None,
    id: Annotated[
        str | None, typer.Option("--id", metavar="ID", help="The trace whose id begins like this.", show_default=False)
    ] = None,
    all: Annotated[
        bool, typer.Option("--all", help="Also traces in which no chain ran, where there are some in which one did.")
    ] = False,
    any_host: Annotated[
        bool, typer.Option("--any-host", help="Listen at an address that other machines can reach, without any key.")
    ] = False,
) -> None:
    """Show which advisor ran when, and where the time went, from the spans of a file or as they come in.

    A line a span: its advisor's order, a bar that shows when it ran (thick: its own time, spread out where it came between
    the chunks of others), its time with and without what is in it (◀: the slowest; in a stream, never that of its reader or
    of what is around it), the first chunk, chunks, tokens, and how it ended. The last line tells the slowest, and in which
    hook most of that was.

    \b
    advisorchain trace spans.jsonl    # by OpenTelemetry's FileSpanExporter, ConsoleSpanExporter or Collector

    \b
    advisorchain trace http://127.0.0.1:4318  # and for the application, always both:
    export OTEL_EXPORTER_OTLP_ENDPOINT=http://127.0.0.1:4318
    export OTEL_EXPORTER_OTLP_PROTOCOL=http/protobuf
    python app.py    # one that has an OTLP exporter
    # or, one that has none: pip install opentelemetry-distro "advisorchain[trace]"
    opentelemetry-instrument python app.py
    """  # noqa: D301  click knows a block that is not to be wrapped by its backspace
    if last is not None and slowest is not None:
        raise typer.BadParameter("give --last or --slowest, not both")
    from advisorchain.cli import trace as tracing  # here: a command waits for no other's modules

    setting = tracing.TraceSetting(source=source, last=last, slowest=slowest, id=id, all=all, any_host=any_host)
    tracing.trace(setting)
