"""`advisorchain trace`: the spans of a file, or of a receiver on this machine while they come in, as trees with times."""

from __future__ import annotations

import re
import shutil
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final
from urllib.parse import urlsplit

from rich.console import Console, Group
from rich.text import Text

from advisorchain import conventions as names
from advisorchain._span_data.data import SpanData
from advisorchain._span_data.files import SpanLines
from advisorchain._span_data.tree import TraceTree, trees
from advisorchain.cli.text import one_line, reconfigured, tell
from advisorchain.cli.trace_live import watch
from advisorchain.cli.trace_slowest import slowest
from advisorchain.cli.trace_table import drawn, plain_symbols
from advisorchain.errors import InvalidInputError, StorageError
from advisorchain.testing.otlp import OtlpReceiver

__all__ = ["TraceSetting", "trace"]

_SHOWN: Final = 3
_PORT: Final = 4318
_PATH: Final = "/v1/traces"
_HOST_AND_PORT: Final = re.compile(r"(?:[\w.-]+|\[[0-9a-f:.]+\]):\d+(?:/.*)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceSetting:
    """What the command line of `advisorchain trace` says."""

    source: str
    last: int | None = None
    slowest: int | None = None
    id: str | None = None
    all: bool = False
    any_host: bool = False


def trace(setting: TraceSetting) -> None:
    """Show the traces of a file, or those that come in until Ctrl-C.

    Raises:
        AdvisorChainError: there is nothing to show, or nobody can listen there.
    """
    if "://" in setting.source:
        _receive(setting)
    else:
        _read(setting)


# -- a file


def _read(setting: TraceSetting) -> None:
    with _opened(setting.source) as lines:
        read = SpanLines(lines)
        found = trees(read)
    if read.unread:
        others = f", and {read.unread - 1} more" if read.unread > 1 else ""
        tell(f"advisorchain: what begins in line {read.first_unread} holds no spans that can be read{others}")
    if not found:
        raise InvalidInputError(
            f"`{setting.source}` holds no spans; give OTLP JSON, such as OpenTelemetry's Collector or its FileSpanExporter"
            " write, or what its ConsoleSpanExporter prints"
        )
    chosen, left_out = _chosen(setting, found)
    paper = Paper()
    for one in chosen:
        paper.write(one)
    paper.line(_closing(chosen, left_out, setting))


@contextmanager
def _opened(path: str) -> Iterator[Iterable[str]]:
    if path == "-":
        if sys.stdin is None:
            raise InvalidInputError("there is no standard input; give a FILE")
        yield reconfigured(sys.stdin, encoding="utf-8", errors="replace")
        return
    try:
        with open(path, encoding="utf-8-sig", errors="replace") as file:
            yield file
    except OSError as error:
        if _HOST_AND_PORT.fullmatch(path):
            raise InvalidInputError(f"`{path}` is no file; to listen there, give the URL `http://{path}`") from error
        raise StorageError(f"`{path}` cannot be read: {error.strerror}; give a file with spans") from error


def _chosen(setting: TraceSetting, found: Sequence[TraceTree]) -> tuple[list[TraceTree], int]:
    """Which traces to show, and how many of those that could be shown are not."""
    if setting.id is not None:
        wanted = setting.id.strip().lower()
        with_id = [one for one in found if one.id.startswith(wanted)]
        if not wanted or not with_id:
            raise InvalidInputError(f"there is no trace `{setting.id}`; the newest is `{found[-1].id}`")
        return with_id, 0
    chains = [one for one in found if one.has_chain]
    of = list(found) if setting.all or not chains else chains
    if setting.slowest is not None:
        of.sort(key=lambda one: -one.seconds)
        return of[: setting.slowest], max(0, len(of) - setting.slowest)
    shown = of[-(setting.last or _SHOWN) :]
    return shown, len(of) - len(shown)


def _closing(shown: Sequence[TraceTree], left_out: int, setting: TraceSetting) -> Text:
    line = Text(slowest(shown), "bold")
    if left_out:
        of = "the slowest" if setting.slowest is not None else "the newest"
        line.append("\n" if line.plain else "")
        whole = len(shown) + left_out
        line.append(f"{of} {len(shown)} of {whole} traces; --last N shows the newest N, --slowest N the slowest", "dim")
    return line


# -- a receiver


def _receive(setting: TraceSetting) -> None:
    if setting.last is not None or setting.slowest is not None:
        raise InvalidInputError("`--last` and `--slowest` choose from a FILE; from a URL all is shown as it comes in")
    host, port = _place(setting.source)
    with OtlpReceiver(host, port, any_host=setting.any_host) as receiver:
        tell(f"spans are taken at {receiver.url} (OTEL_EXPORTER_OTLP_ENDPOINT); Ctrl-C ends")
        watch(receiver, Paper(), setting.id, every=setting.all)


def _place(url: str) -> tuple[str, int]:
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError as error:
        raise InvalidInputError(f"`{url}` is no URL; give one such as http://127.0.0.1:{_PORT}") from error
    if parts.scheme != "http" or not host or parts.path.rstrip("/") not in ("", _PATH):
        raise InvalidInputError(f"`{url}` is nowhere to listen; give a URL such as http://127.0.0.1:{_PORT}")
    return host, _PORT if port is None else port


# -- what is shown


class Paper:
    """Where traces are written: standard output, in colours if it is a terminal that has some."""

    def __init__(self) -> None:
        self.console: Final = Console(highlight=False, markup=False, emoji=False)
        self._plain: Final = not _writes(getattr(sys.stdout, "encoding", None) or "utf-8", "│├└─█◀…→�")

    @property
    def width(self) -> int:
        """How many columns there are."""
        return shutil.get_terminal_size(fallback=(120, 24)).columns

    def lines(self, one: TraceTree, missing: str | None = None) -> list[Text]:
        """A trace, with a line that says which it is."""
        told = {} if missing is None else {"missing": missing}
        return [self._writable(line) for line in (_title(one, self.width), *drawn(one, self.width, **told))]

    def write(self, one: TraceTree, *, with_slowest: bool = False) -> None:
        """Write a trace, and with it, if that is wanted, whose time it was."""
        lines = self.lines(one)
        if with_slowest:
            lines.append(self._writable(Text(slowest([one]), "bold")))
        self._print(Group(*lines, Text()))

    def line(self, line: Text) -> None:
        """Write a line, now."""
        self._print(self._writable(line))

    def _print(self, what: Group | Text) -> None:
        self.console.print(what, soft_wrap=True)
        self.console.file.flush()

    def _writable(self, line: Text) -> Text:
        return Text(plain_symbols(line.plain), spans=line.spans, no_wrap=True) if self._plain else line


def _writes(encoding: str, text: str) -> bool:
    try:
        text.encode(encoding)
    except (UnicodeError, LookupError):
        return False
    return True


def _title(one: TraceTree, width: int) -> Text:
    began = datetime.fromtimestamp(one.start / 1e9, UTC).astimezone()
    service = one.spans[0].resource.get("service.name")
    conversation = _first(one, names.CONVERSATION_ID)
    cost = [span.attributes[names.COST] for span in one.spans if names.COST in span.attributes and _asks_model(span)]
    parts = [
        f"trace {one_line(one.id)}",
        f"{began:%Y-%m-%d %H:%M:%S}",
        f"{len(one.spans)} span{'s' * (len(one.spans) > 1)}",
        "" if service is None or str(service).startswith("unknown_service") else f"service {one_line(str(service))}",
        "" if conversation is None else f"conversation {one_line(str(conversation))}",
        f"${sum(cost):.4f}" if cost and all(isinstance(part, int | float) for part in cost) else "",
        *(f"goes on with trace {one_line(link.trace_id)}" for link in one.spans[0].links[:1]),
    ]
    line = Text("  ".join(part for part in parts if part), "bold", no_wrap=True)
    line.truncate(width, overflow="ellipsis")
    return line


def _first(one: TraceTree, name: str) -> Any:
    return next((span.attributes[name] for span in one.spans if name in span.attributes), None)


def _asks_model(span: SpanData) -> bool:
    return names.KIND not in span.attributes  # of a chain, it is the sum of those of its model calls
