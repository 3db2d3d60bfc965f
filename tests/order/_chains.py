"""Any chain: advisors of every kind, with names, orders and words that nobody would choose."""

from __future__ import annotations

import warnings
from collections.abc import AsyncGenerator
from typing import Any

from hypothesis import strategies as st

from advisorchain._lint import rule_book
from advisorchain.advisor import HIGHEST_PRECEDENCE, LOWEST_PRECEDENCE, AroundAdvisor, BaseAdvisor, Next, StreamItem
from advisorchain.chain import AdvisorChain
from advisorchain.errors import AdvisorOrderWarning
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse

Entry = tuple[str, str, str]  # advisor, hook, way

HOSTILE = [
    '"]; end %% x',
    "end",
    "`md` **b**",
    "#quot; &lt; <b>x</b> <script>alert(1)</script>",
    "a\nb\x1b[31m\u202ex\x00",
    "日本語 😀 é",
    "]]><!-- --> {{x}} |y|",
    "\ud800 \uffff",
    "1. list",
    "%%{init: {}}%%",
    "[bold]not markup[/bold]",
    "{} {what} {0!r}",
    "model",
    "request",
]
KINDS = ("hooks", "around", "call", "stream", "both", "around and call")
MARKS = (*rule_book._MARKS, "to_stream", "chains")
WORDS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(
        [
            *HOSTILE,
            "observe",
            "cut short",
            "round",
            "attempt",
            "",
            3,
            ("change",),
            ["hold back"],
            object(),
            lambda *inner: "as a method",
        ]
    ),
)
NAMES = st.one_of(st.sampled_from(HOSTILE), st.text(min_size=1, max_size=12).filter(str.strip))
ORDERS = st.one_of(st.integers(-2, 2), st.sampled_from([HIGHEST_PRECEDENCE, LOWEST_PRECEDENCE, HIGHEST_PRECEDENCE + 200]))


class Logging:
    """Writes down its first of each kind of event."""

    def __init__(self, name: str, log: list[Entry]) -> None:
        self.name = name
        self.log = log

    def told(self, hook: str, way: str) -> None:
        if (entry := (self.name, hook, way)) not in self.log:
            self.log.append(entry)


class Fed:
    def __init__(self, log: Logging, way: str) -> None:
        self.log, self.way = log, way

    def feed(self, text: str) -> str:
        self.log.told("transform", self.way)
        return text

    def flush(self) -> str:
        return ""


def hooked(log: Logging, hooks: frozenset[str], transform_way: str) -> dict[str, Any]:
    def before(self: Any, request: ChatRequest) -> ChatRequest:
        log.told("before", "in")
        return request

    def transform(self: Any, request: ChatRequest) -> Any:
        return Fed(log, transform_way)

    def after(self: Any, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        log.told("after", "out")
        return response

    def done(self: Any, request: ChatRequest, outcome: Any) -> None:
        log.told("done", "out")

    return {hook.__name__: hook for hook in (before, transform, after, done) if hook.__name__ in hooks}


def around(log: Logging, hook: str, *, chunks: bool) -> Any:
    async def passing(self: Any, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        log.told(hook, "in")
        async for item in next(request):
            if isinstance(item, ChatChunk):
                if chunks:
                    log.told(hook, "chunks")
            else:
                log.told(hook, "out")
            yield item

    return passing


def calling(log: Logging) -> Any:
    async def advise_call(self: Any, request: ChatRequest, next: Any) -> ChatResponse:
        log.told("advise_call", "in")
        response: ChatResponse = await next(request)
        log.told("advise_call", "out")
        return response

    return advise_call


def methods(kind: str, log: Logging, hooks: frozenset[str], *, streamed: bool) -> dict[str, Any]:
    if kind == "hooks":
        return hooked(log, hooks, "chunks" if streamed else "out")
    told: dict[str, Any] = {}
    if kind in ("around", "around and call"):
        told["around"] = around(log, "around", chunks=streamed)
    if kind in ("stream", "both"):
        told["advise_stream"] = around(log, "advise_stream", chunks=streamed)
    if kind in ("call", "both", "around and call"):
        told["advise_call"] = calling(log)
    return told


def advisor(name: str, order: int, kind: str, hooks: frozenset[str], log: list[Entry], *, streamed: bool = True) -> Any:
    base = AroundAdvisor if kind.startswith("around") else BaseAdvisor if kind == "hooks" else object
    made = methods(kind, Logging(name, log), hooks, streamed=streamed)
    return type("Any", (base,), {"name": name, "order": order, **made})()


@st.composite
def plans(draw: st.DrawFn) -> list[tuple[str, int, str, frozenset[str]]]:
    """Names, orders, kinds and hooks of advisors."""
    names = draw(st.lists(NAMES, max_size=6, unique=True))
    hooks = st.frozensets(st.sampled_from(["before", "transform", "after", "done"]), min_size=1)
    return [(name, draw(ORDERS), draw(st.sampled_from(KINDS)), draw(hooks)) for name in names]


@st.composite
def chains(draw: st.DrawFn) -> AdvisorChain:
    """Chains whose advisors say anything of themselves."""
    advisors = []
    for plan in draw(plans()):
        each = advisor(*plan, log=[])
        for mark in draw(st.sets(st.sampled_from(MARKS), max_size=6)):
            setattr(each, mark, draw(WORDS))
        advisors.append(each)

    async def model(request: ChatRequest) -> str:
        return "x"

    model.__name__ = draw(NAMES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", AdvisorOrderWarning)
        return AdvisorChain(model, advisors, name=draw(NAMES))
