"""`explain()`: the table as text and in colour, as data, in a notebook; the same for any chain, whatever its names are."""

from __future__ import annotations

import json
import subprocess
import sys
from html.parser import HTMLParser
from io import StringIO
from typing import Any

import pytest
from hypothesis import given, settings
from rich.console import Console

from advisorchain import AdvisorChain, BaseAdvisor, ChatRequest
from advisorchain.advisors import MessageChatMemoryAdvisor, RetryAdvisor, ToolCallingAdvisor
from advisorchain.errors import InvalidInputError
from advisorchain.explain import Explanation, explain
from advisorchain.memory import ChatMemory
from advisorchain.testing import ScriptedModel

from ._chains import HOSTILE, chains


class Shout(BaseAdvisor):
    name, order, to_stream = "shout", 9, "change"

    def transform(self, request: ChatRequest) -> Any:
        return None


def support() -> AdvisorChain:
    advisors = [RetryAdvisor(), Shout(), ToolCallingAdvisor(), MessageChatMemoryAdvisor(ChatMemory())]
    return AdvisorChain(ScriptedModel(), advisors, name="support")


TABLE = """\
chain `support` around model `scripted`: 4 advisors, outermost first
#        order  name    type                      hooks                sees            stream
0  -2147483448  memory  MessageChatMemoryAdvisor  before, done         the whole turn  observe
1  -2147483348  tools   ToolCallingAdvisor        around, advise_call  the whole turn  change
2            9  shout   Shout                     transform            each round      change
3         5000  retry   RetryAdvisor              around, advise_call  each round      observe
tools: asks the rest again: round by round
retry: asks the rest again: attempt by attempt
memory: keeps the question and the final answer"""


def test_the_table() -> None:
    assert str(support().explain()) == TABLE
    assert str(AdvisorChain(ScriptedModel()).explain()) == "chain `chain` around model `scripted`: no advisors"
    assert ": 1 advisor, outermost" in str(AdvisorChain(ScriptedModel(), [Shout()]).explain())


def shown(value: Any, width: int) -> str:
    console = Console(file=StringIO(), width=width, force_terminal=True, color_system=None)
    console.print(value)
    file: Any = console.file
    return str(file.getvalue())


def test_rich_shows_the_same_in_a_terminal() -> None:
    lines = shown(support().explain(), 140).splitlines()
    assert [line.split() for line in TABLE.splitlines()[1:6]] == [
        line.split() for line in lines if line.strip() and "─" not in line
    ][1:6]
    narrow = shown(support().explain(), 80)
    assert all(len(line) <= 80 for line in narrow.splitlines())
    assert all(word in narrow for word in ("-2147483448", "memory", "advise_call", "transform", "observe", "stream"))
    assert "MessageC" in narrow


def test_without_rich_there_is_the_text() -> None:
    code = """
import sys
sys.modules["rich"] = None
from advisorchain import AdvisorChain, before
async def model(request): return "x"
chain = AdvisorChain(model, [before(lambda request: request, name="mine")])
assert "advisorchain.explain" not in sys.modules
print(chain.explain(), len(chain._repr_html_()) > 100, bool(chain.explain().svg() and chain.explain().mermaid()))
"""
    code = code.replace("before(lambda request: request, name", "before(order=0, name").replace(
        '"mine")]', '"mine")(print)]'
    )
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stderr
    assert "mine" in ran.stdout
    assert ran.stdout.endswith("True True\n")


def test_what_a_chain_does_not_need_is_not_loaded() -> None:
    code = """
import sys, advisorchain
late = ("advisorchain.lint", "advisorchain.explain", "advisorchain._lint.order_rules", "advisorchain._explain.rich_table")
print([name for name in late if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"


@settings(deadline=None)
@given(chains())
def test_any_chain_is_shown_on_lines_of_its_own(chain: AdvisorChain) -> None:
    explanation = chain.explain()
    lines = str(explanation).split("\n")
    assert len(lines) >= 1 + len(explanation.rows) + bool(explanation.rows)
    assert all(character.isprintable() or character in "\u200d\u200b\xa0" or ord(character) > 0x7F
               for line in lines for character in line)  # fmt: skip
    str(explanation).encode()  # no lone surrogates
    assert shown(explanation, 80).count("\x1b") == 0
    for row, line in zip(explanation.rows, lines[2:], strict=False):
        assert line.split()[:2] == [str(row.index), str(row.order)]


def test_a_name_is_no_markup() -> None:
    told = shown(AdvisorChain(ScriptedModel(), [_named("[bold]not markup[/bold]")]).explain(), 200)
    assert "[bold]not markup[/bold]" in told


def _named(name: str) -> Any:
    return type("Named", (Shout,), {"name": name})()


# -- as data


@settings(deadline=None)
@given(chains())
def test_any_chain_is_json(chain: AdvisorChain) -> None:
    told = chain.explain().to_dict()
    assert json.loads(json.dumps(told)) == told
    assert [(row["index"], row["order"], row["name"]) for row in told["advisors"]] == [
        (row.index, row.order, row.name) for row in chain.describe()
    ]
    for mode in ("call", "stream"):
        assert [moment["number"] for moment in told[mode]] == list(range(1, len(told[mode]) + 1))


def test_an_explanation_is_a_value() -> None:
    chain = support()
    assert chain.explain() == chain.explain() == explain(chain) == explain(chain.explain())
    assert chain.explain().rows == chain.describe()
    assert isinstance(explain(chain), Explanation)
    with pytest.raises(InvalidInputError, match="a str cannot be explained"):
        explain("x")


# -- in a notebook


class Reader(HTMLParser):
    VOID = ("rect", "path")

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.cells: list[str] = []
        self.seen: set[str] = set()

    def handle_starttag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)
        self.open.append(tag)
        if tag == "td":
            self.cells.append("")

    def handle_startendtag(self, tag: str, attrs: Any) -> None:
        self.seen.add(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        if self.open and self.open[-1] == "td":
            self.cells[-1] += data


@settings(deadline=None)
@given(chains())
def test_any_chain_is_a_fragment_of_html(chain: AdvisorChain) -> None:
    reader = Reader()
    reader.feed(chain._repr_html_())
    assert reader.open == []
    assert "svg" in reader.seen
    assert not reader.seen & {"script", "b"}
    assert len(reader.cells) == 7 * len(chain.advisors)


def test_a_notebook_shows_chain_and_explanation_alike() -> None:
    chain = AdvisorChain(ScriptedModel(), [_named(name) for name in HOSTILE])
    assert chain._repr_html_() == chain.explain()._repr_html_()
    assert "&lt;script&gt;" in chain._repr_html_()
