"""The rules: each finds what it is there for, and nothing once its own cure was taken."""

from __future__ import annotations

import re
import subprocess
import sys
import warnings
from collections.abc import AsyncGenerator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings

from advisorchain import ChatClient, lint
from advisorchain.advisor import HIGHEST_PRECEDENCE, LOWEST_PRECEDENCE, AroundAdvisor, BaseAdvisor, Next, StreamItem
from advisorchain.advisors import (
    CacheAdvisor,
    FallbackAdvisor,
    LoggingAdvisor,
    MessageChatMemoryAdvisor,
    RateLimitAdvisor,
    RedactAdvisor,
    ReReadingAdvisor,
    RetryAdvisor,
    SafeGuardAdvisor,
    StructuredOutputAdvisor,
    TimeoutAdvisor,
    ToolCallingAdvisor,
    ToolsetAdvisor,
    UsageLimitAdvisor,
)
from advisorchain.chain import AdvisorChain
from advisorchain.errors import AdvisorOrderWarning, InvalidInputError
from advisorchain.exchange import ChatRequest, ChatResponse
from advisorchain.memory import ChatMemory, MessageWindow, Serialize, Unbounded
from advisorchain.testing import ScriptedModel
from advisorchain.tools.toolset import FunctionToolset

from ._chains import chains

OUT = HIGHEST_PRECEDENCE
IN = 9000


class Shout(BaseAdvisor):
    name = "shout"

    def __init__(self, order: int = 0) -> None:
        self.order = order

    def transform(self, request: ChatRequest) -> Any:
        return None


class Watches(Shout):
    name, to_stream = "watches", "observe"


class Retrieves(BaseAdvisor):
    name, order, changes_prompt = "retrieves", OUT, True

    def before(self, request: ChatRequest) -> ChatRequest:
        return request


class Own(BaseAdvisor):
    name, order = "own", 0

    def before(self, request: ChatRequest) -> ChatRequest:
        return request

    def misplaced(self, inner: tuple[Any, ...]) -> str | None:
        return None if inner else "nothing is further in; add something"


class Greets(BaseAdvisor):
    name, order = "greets", -1

    def before(self, request: ChatRequest) -> ChatRequest | ChatResponse:
        return request


class Counts(BaseAdvisor):
    name, order = "counts", 1

    def done(self, request: ChatRequest, outcome: Any) -> None:
        return None


class CallOnly:
    name, order = "call", 0

    async def advise_call(self, request: ChatRequest, next: Any) -> ChatResponse:
        response: ChatResponse = await next(request)
        return response


class Loop(AroundAdvisor):
    name, order, runs_tools, repeats = "loop", 5, True, "round"

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        async for item in next(request):
            yield item


class TextOnly(Unbounded):
    keeps_tool_messages = False


def memory(order: int | None = None, **settings: Any) -> MessageChatMemoryAdvisor:
    return MessageChatMemoryAdvisor(ChatMemory(**settings), **({} if order is None else {"order": order}))


def no_tools() -> FunctionToolset:
    return FunctionToolset(lambda request: [])


# What each rule finds: the chain, who stands wrong, to whom, and a part of what is said.
FOUND: dict[str, tuple[str, list[Any], str, tuple[str, ...], str]] = {
    "guard": ("guard-outside-memory", [SafeGuardAdvisor(["x"]), memory(0)], "guard", ("memory",), "kept by then: `memory`"),
    "typed": ("guard-outside-memory", [StructuredOutputAdvisor(int), memory(IN)], "structured_output", ("memory",), "kept"),
    "cache": ("guard-outside-cache", [SafeGuardAdvisor(["x"]), CacheAdvisor(order=0)], "guard", ("cache",), "given again"),
    "shout": ("guard-behind-transform", [SafeGuardAdvisor(["x"], order=IN), Shout()], "guard", ("shout",), "is not judged"),
    "redact": (
        "changed-prompt-kept",
        [RedactAdvisor(["email"], order=OUT), memory()],
        "redact",
        ("memory",),
        "placeholders",
    ),
    "twice": ("changed-prompt-kept", [ReReadingAdvisor(order=OUT), CacheAdvisor()], "re_reading", ("cache",), "twice"),
    "retrieval": ("changed-prompt-kept", [Retrieves(), memory()], "retrieves", ("memory",), "what it makes of the prompt"),
    "no history": ("cache-outside-memory", [CacheAdvisor(order=OUT), memory()], "cache", ("memory",), "left out"),
    "toolset": (
        "cache-outside-toolsets",
        [CacheAdvisor(), ToolsetAdvisor(no_tools(), order=0), ToolCallingAdvisor(order=1)],
        "cache",
        ("toolsets",),
        "other tools of `toolsets`",
    ),
    "retry": ("retry-outside-memory", [RetryAdvisor(order=OUT), memory()], "retry", ("memory",), "through `memory` again"),
    "again": ("retry-outside-tools", [RetryAdvisor(order=OUT), ToolCallingAdvisor()], "retry", ("tools",), "runs the tools"),
    "limit": (
        "limit-inside-retry",
        [RetryAdvisor(), UsageLimitAdvisor(calls=1, order=IN)],
        "retry",
        ("usage_limit",),
        "is a call in the budget",
    ),
    "models": (
        "retry-outside-fallback",
        [RetryAdvisor(), FallbackAdvisor(ScriptedModel(), order=IN)],
        "retry",
        ("fallback",),
        "asks all models",
    ),
    "guard of one": (
        "fallback-passes-by",
        [FallbackAdvisor(ScriptedModel()), SafeGuardAdvisor(["x"], order=IN)],
        "fallback",
        ("guard",),
        "not asked through `guard`",
    ),
    "loops": (
        "two-tool-loops",
        [ToolCallingAdvisor(), Loop()],
        "tools",
        ("loop",),
        "`loop`, which is further in, is a tool loop too",
    ),
    "no loop": ("toolset-without-loop", [ToolsetAdvisor(no_tools())], "toolsets", (), "no tool loop `tools`"),
    "leases": ("memory-in-loop", [Loop(), memory(6, concurrency=Serialize())], "memory", ("loop",), "rule `Serialize`"),
    "window": ("memory-in-loop", [Loop(), memory(6, policy=MessageWindow(3))], "memory", ("loop",), "window of 3"),
    "text": ("memory-in-loop", [Loop(), memory(6, policy=TextOnly())], "memory", ("loop",), "`TextOnly` keeps no tool"),
    "own": ("misplaced", [Own()], "own", (), "nothing is further in; add something"),
    "logger": (
        "skipped-observer",
        [CacheAdvisor(), SafeGuardAdvisor(["x"]), LoggingAdvisor()],
        "logger",
        ("cache", "guard"),
        "does not see what `cache`, `guard`",
    ),
    "greets": ("skipped-observer", [Greets(), Counts()], "counts", ("greets",), "`greets`, further out"),
    "equal": ("equal-orders", [Own(), Shout(), Watches(1), Counts()], "own", ("shout",), "`order` 0 is that of `shout` too"),
    "call": ("serves-calls-only", [CallOnly()], "call", (), "one chunk, at the end"),
}
HINTS = ("skipped-observer", "equal-orders", "serves-calls-only")
WITHOUT_ORDER = ("two-tool-loops", "toolset-without-loop", "misplaced", "equal-orders", "serves-calls-only")


def linted(*advisors: Any) -> tuple[lint.Finding, ...]:
    with warnings.catch_warnings(action="ignore", category=AdvisorOrderWarning):
        return AdvisorChain(ScriptedModel(), advisors).lint()


@pytest.mark.parametrize("case", FOUND)
def test_what_a_rule_finds(case: str) -> None:
    rule, advisors, advisor, others, problem = FOUND[case]
    (found,) = [finding for finding in linted(*advisors) if finding.rule == rule and finding.advisor == advisor]
    assert (found.advisor, found.others) == (advisor, others)
    assert problem in found.problem
    assert str(found).startswith(f"{rule}: advisor `{advisor}`: ")
    assert found.level == ("hint" if rule in HINTS else "warning")


@pytest.mark.parametrize("case", [case for case in FOUND if FOUND[case][0] not in HINTS])
def test_it_is_a_warning_where_the_chain_is_built(case: str) -> None:
    rule, advisors, advisor, *_ = FOUND[case]
    with pytest.warns(AdvisorOrderWarning, match=f"^{rule}: advisor `{advisor}`") as told:
        AdvisorChain(ScriptedModel(), advisors)
    assert {warning.filename for warning in told} == {__file__}


@pytest.mark.parametrize("case", [case for case in FOUND if FOUND[case][0] in HINTS])
def test_a_hint_is_none(case: str) -> None:
    AdvisorChain(ScriptedModel(), FOUND[case][1])  # warnings are errors here


@pytest.mark.parametrize("case", [case for case in FOUND if FOUND[case][0] not in WITHOUT_ORDER])
def test_the_cure_cures(case: str) -> None:
    rule, advisors, *_ = FOUND[case]
    (found,) = [finding for finding in linted(*advisors) if finding.rule == rule and finding.advisor == FOUND[case][2]]
    given_order = re.search(r"give this one an `order` (above|below) (-?\d+)", found.cure)
    assert given_order is not None
    (wrong,) = [each for each in advisors if each.name == found.advisor]
    before = wrong.order
    try:
        wrong.order = int(given_order[2]) + (1 if given_order[1] == "above" else -1)
        assert rule not in [finding.rule for finding in linted(*advisors)]
    finally:
        wrong.order = before


def test_an_order_that_there_is_not_is_no_cure() -> None:
    (found,) = linted(SafeGuardAdvisor(["x"], order=0), Shout(OUT))
    assert found.cure == "give `shout` an `order` above 0"
    (found,) = linted(SafeGuardAdvisor(["x"], order=0), memory(LOWEST_PRECEDENCE))
    assert found.cure == "give `memory` an `order` below 0"


FINE: dict[str, list[Any]] = {
    "all at their places": [
        memory(),
        CacheAdvisor(),
        SafeGuardAdvisor(["x"]),
        ReReadingAdvisor(),
        ToolsetAdvisor(no_tools()),
        ToolCallingAdvisor(),
        Shout(),
        RedactAdvisor(["email"], restore=True),
        StructuredOutputAdvisor(int),
        UsageLimitAdvisor(calls=1),
        FallbackAdvisor(ScriptedModel()),
        RetryAdvisor(),
        RateLimitAdvisor(1, 1),
        TimeoutAdvisor(1),
    ],
    "a guard of questions alone": [SafeGuardAdvisor(["x"], check_output=False), memory(0), Shout(OUT)],
    "a transform that only looks": [Watches(), SafeGuardAdvisor(["x"], order=IN)],
    "what redaction puts back was said by the user": [
        RedactAdvisor(["email"], restore=True),
        SafeGuardAdvisor(["x"], order=IN),
    ],
    "memory in the loop": [ToolCallingAdvisor(), memory(0)],
    "memory with leases outside": [memory(concurrency=Serialize()), ToolCallingAdvisor()],
    "two caches": [CacheAdvisor(), CacheAdvisor(name="second", order=0)],
    "a limit that retries are to pass": [RetryAdvisor(), RateLimitAdvisor(1, 1, max_wait=0)],
    "a log outside and one inside": [
        LoggingAdvisor(name="outer", order=OUT),
        CacheAdvisor(),
        LoggingAdvisor(),
    ],
    "a log inside of what always asks": [ToolCallingAdvisor(), RetryAdvisor(), LoggingAdvisor(order=IN)],
    "equal orders of those who only look": [LoggingAdvisor(), LoggingAdvisor(name="second"), Shout()],
    "marks that mean something else": [type("Odd", (Own,), {"keeps_answers": 1, "retries": object(), "misplaced": True})()],
}


@pytest.mark.parametrize("case", FINE)
def test_no_false_alarm(case: str) -> None:
    assert linted(*FINE[case]) == ()


def test_one_who_was_found_is_found_in_the_chains_made_of_it() -> None:
    with pytest.warns(AdvisorOrderWarning):
        chain = AdvisorChain(ScriptedModel(), [SafeGuardAdvisor(["x"]), memory(0)])
    assert [finding.rule for finding in chain.lint()] == ["guard-outside-memory"]
    assert chain.lint(ignore=["guard-outside-memory"]) == ()
    assert chain.without("guard").lint() == ()


# -- warnings, as the application has them


def test_one_rule_is_filtered_by_its_name_and_all_can_be_errors() -> None:
    advisors = [SafeGuardAdvisor(["x"]), memory(0), CacheAdvisor(order=1)]
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        warnings.filterwarnings("ignore", "guard-outside-cache", AdvisorOrderWarning)
        AdvisorChain(ScriptedModel(), advisors)
    assert [str(warning.message).partition(":")[0] for warning in told] == ["guard-outside-memory"]
    with warnings.catch_warnings():
        warnings.simplefilter("error", AdvisorOrderWarning)
        with pytest.raises(AdvisorOrderWarning, match="guard-outside-memory"):
            AdvisorChain(ScriptedModel(), advisors)


def test_on_the_command_line_too() -> None:
    code = """
from advisorchain import AdvisorChain
from advisorchain.advisors import MessageChatMemoryAdvisor, SafeGuardAdvisor
from advisorchain.memory import ChatMemory
async def model(request): return "x"
AdvisorChain(model, [SafeGuardAdvisor(["x"]), MessageChatMemoryAdvisor(ChatMemory(), order=0)])
"""
    silent, loud = (
        subprocess.run([sys.executable, *flags, "-c", code], capture_output=True, text=True)
        for flags in (["-W", "error", "-W", "ignore:guard-outside-memory"], ["-W", "error"])
    )
    assert (silent.returncode, silent.stderr) == (0, "")
    assert loud.returncode == 1


def test_a_client_points_at_its_own_maker() -> None:
    with pytest.warns(AdvisorOrderWarning, match="guard-outside-memory") as told:
        ChatClient(ScriptedModel(), memory=memory(0), advisors=[SafeGuardAdvisor(["x"])])
    assert told[0].filename == __file__


# -- the book of rules


def test_each_rule_is_in_the_table_and_in_these_tests() -> None:
    table = re.findall(r"^\| ([a-z-]+)( \(hint\))? \| (.+) \| (.+) \|$", lint.__doc__ or "", re.MULTILINE)
    told = [(name, "hint" if hint else "warning") for name, hint, _, _ in table[1:]]  # without its head
    assert told == [(rule.name, rule.level) for rule in lint.rules()]
    assert {case[0] for case in FOUND.values()} == {rule.name for rule in lint.rules()}
    assert all(rule.reason and rule.cure for rule in lint.rules())


def test_what_is_no_rule_cannot_be_ignored() -> None:
    chain = AdvisorChain(ScriptedModel())
    with pytest.raises(InvalidInputError, match="`nonsense`, which is no rule; the rules: guard-outside-memory, "):
        chain.lint(ignore=["nonsense"])
    with pytest.raises(InvalidInputError, match="`ignore` is a str"):
        chain.lint(ignore="equal-orders")
    assert chain.lint() == ()


@settings(deadline=None, max_examples=100)
@given(chains())
def test_lint_has_an_answer_for_any_chain(chain: AdvisorChain) -> None:
    names = [row.name for row in chain.describe()]
    for finding in chain.lint():
        assert finding.rule in [rule.name for rule in lint.rules()]
        assert finding.advisor in names
        assert set(finding.others) <= set(names) - {finding.advisor}
        assert finding.problem in str(finding)
    assert chain.lint(ignore=[rule.name for rule in lint.rules()]) == ()


@pytest.mark.slow  # runs all programs of the README and of the examples
def test_no_false_alarm_in_what_we_show_ourselves(tmp_path: Path) -> None:
    script = str(Path(__file__).parent / "_built.py")
    ran = subprocess.run([sys.executable, script], capture_output=True, text=True, cwd=tmp_path)
    assert ran.returncode == 0, ran.stderr
    built, *found = ran.stdout[ran.stdout.index("chains built: ") :].splitlines()
    assert int(built.split()[-1]) > 20
    assert found == []
