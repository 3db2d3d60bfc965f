"""The onion as SVG and as Mermaid: whole, in order, and harmless, whatever the names are."""

from __future__ import annotations

import re
from itertools import pairwise
from typing import Any
from xml.etree import ElementTree as ET

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisorchain.advisor import BaseAdvisor
from advisorchain.advisors import MessageChatMemoryAdvisor, ToolCallingAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.exchange import ChatRequest
from advisorchain.memory import ChatMemory
from advisorchain.testing import RecordingAdvisor, ScriptedModel

from ._chains import HOSTILE, advisor, chains

SVG = "{http://www.w3.org/2000/svg}"
ALL = frozenset({"before", "transform", "after", "done"})
MODES = pytest.mark.parametrize("stream", [False, True], ids=["call", "stream"])


def drawn(chain: AdvisorChain, *, stream: bool) -> ET.Element:
    picture = chain.explain().svg(stream=stream)
    picture.encode()
    return ET.fromstring(picture)


def texts(picture: ET.Element) -> list[str]:
    return [text.text or "" for text in picture.iter(f"{SVG}text")]


def boxes(picture: ET.Element, kind: str) -> list[tuple[float, ...]]:
    found = [rect for rect in picture.iter(f"{SVG}rect") if rect.get("class") == kind and "x" in rect.attrib]
    return [tuple(float(rect.attrib[name]) for name in ("x", "y", "width", "height")) for rect in found]


def contains(outer: tuple[float, ...], inner: tuple[float, ...]) -> bool:
    (x, y, width, height), (left, top, wide, high) = outer, inner
    return x < left and y < top and x + width > left + wide and y + height > top + high


@settings(deadline=None)
@given(chains(), st.booleans())
def test_any_picture_is_xml_and_has_a_box_in_a_box_for_each_advisor(chain: AdvisorChain, stream: bool) -> None:
    picture = drawn(chain, stream=stream)
    assert {element.tag.removeprefix(SVG) for element in picture.iter()} <= {"svg", "title", "style", "rect", "text", "path"}
    *onion, model = boxes(picture, "ac-f-box ac-s-box")
    assert len(onion) == len(chain.advisors)
    assert all(contains(outer, inner) for outer, inner in zip(onion, [*onion[1:], model], strict=False))
    height = float(picture.attrib["height"])
    assert all(y + tall <= height for _, y, _, tall in onion)
    labels = [f"{moment.number} {moment.hook}" for moment in chain.explain().path(stream=stream) if moment.index is not None]
    assert sorted(labels) == sorted(text for text in texts(picture) if re.fullmatch(r"\d+ [a-z_]+", text) and text in labels)


def test_a_picture_of_many_advisors_has_room_for_their_hooks() -> None:
    many = [advisor(f"advisor {n}", n, "hooks", ALL, []) for n in range(40)]
    picture = drawn(AdvisorChain(ScriptedModel(), many), stream=False)
    hooks = [box for kind in ("in", "out") for box in boxes(picture, f"ac-f-ground ac-s-{kind}")]
    assert len(hooks) == 40 * 4
    assert len({(x, y) for x, y, _, _ in hooks}) == len(hooks)
    *onion, model = boxes(picture, "ac-f-box ac-s-box")
    assert all(box[0] + 1 < model[0] for box in onion)
    assert all(contains(onion[0], hook) for hook in hooks)


@MODES
def test_the_numbers_and_names_are_there(stream: bool) -> None:
    chain = AdvisorChain(ScriptedModel(), [RecordingAdvisor("outer", -5), RecordingAdvisor("inner", 7)], name="demo")
    told = texts(drawn(chain, stream=stream))
    assert told[0] == f"{'A stream' if stream else 'A call'} through the chain “demo”"
    assert [text for text in told if text in ("outer", "inner")] == ["outer", "inner"]
    assert "order −5 · RecordingAdvisor" in told
    assert ("chunks" in told) is stream
    assert ("stream: observe" in told) is stream
    assert "3 · scripted" in told
    out = ["4 transform", "5 transform", "6 after", "7 done", "8 after", "9 done"]
    whole = ["4 transform", "5 after", "6 done", "7 transform", "8 after", "9 done"]
    assert set(out if stream else whole) <= set(told)


def test_what_is_too_long_is_cut_and_told_to_who_points_at_it() -> None:
    name = "a name that is " + "very " * 20 + "long"
    picture = drawn(AdvisorChain(ScriptedModel(), [RecordingAdvisor(name)]), stream=True)
    (text,) = [text for text in picture.iter(f"{SVG}text") if (text.text or "").startswith("a name")]
    assert (text.text or "").endswith("…")
    assert text.findtext(f"{SVG}title") == name


def test_names_are_escaped() -> None:
    chain = AdvisorChain(ScriptedModel(), [RecordingAdvisor(name, n) for n, name in enumerate(HOSTILE)])
    picture = chain.explain().svg()
    assert "<script" not in picture
    assert "&lt;b&gt;x&lt;/b&gt; &lt;script&gt;" in picture
    assert "end" in texts(ET.fromstring(picture))
    assert "prefers-color-scheme:dark" in picture


# -- Mermaid, whose own parser has read the same pictures when this was written


NODE = re.compile(r'(\w+)(?:\["([^"]*)"\]|\[\["([^"]*)"\]\]|\(\["([^"]*)"\]\))')
EDGE = re.compile(r"(\w+) (-->|-\.->) (\w+)")
SAFE = re.compile(r"(?:\d+ model: )?(?:[\w \-_.,()+·�]|[^\x00-\x7f]|#\d+;|<br/>)*")


def parsed(chart: str) -> tuple[dict[str, str], list[tuple[str, str]], int]:
    """The nodes with their labels, the edges, and how deep the model lies."""
    first, *lines = chart.rstrip("\n").split("\n")
    assert first == "flowchart TB"
    nodes: dict[str, str] = {}
    edges: list[tuple[str, str]] = []
    depth = deepest = 0
    for line in map(str.strip, lines):
        if line == "end":
            depth -= 1
        elif line.startswith("subgraph "):
            assert re.fullmatch(r'subgraph a\d+\[" "\]', line)
            depth += 1
        elif edge := EDGE.fullmatch(line):
            edges.append((edge[1], edge[3]))
        else:
            node = NODE.fullmatch(line)
            assert node is not None, line
            label = node[2] or node[3] or node[4]
            assert SAFE.fullmatch(label), label
            assert node[1] not in nodes
            nodes[node[1]] = label
            deepest = depth if node[1] == "model" else deepest
    assert depth == 0
    return nodes, edges, deepest


def unquoted(label: str) -> str:
    return re.sub(r"#(\d+);", lambda found: chr(int(found[1])), label)


@settings(deadline=None)
@given(chains(), st.booleans())
def test_any_chart_is_whole(chain: AdvisorChain, stream: bool) -> None:
    explanation = chain.explain()
    nodes, edges, depth = parsed(explanation.mermaid(stream=stream))
    assert depth == len(chain.advisors)
    assert {end for edge in edges for end in edge} == set(nodes)
    way = ["request", *(f"in{row.index}" for row in explanation.rows), "model"]
    assert edges[: len(way) - 1] == list(pairwise(way))
    out = [f"m{moment.number}" for moment in explanation.path(stream=stream) if moment.way == "out"]
    assert edges[-len(out) - 1 :] == list(zip(["model", *out], [*out, "response"], strict=True))
    assert ("chunks" in nodes) is stream


def test_labels_say_what_names_say() -> None:
    chain = AdvisorChain(ScriptedModel(), [RecordingAdvisor(name, n) for n, name in enumerate(HOSTILE)])
    nodes, _, _ = parsed(chain.explain().mermaid())
    told = [unquoted(nodes[f"in{n}"]).split("<br/>order ")[0] for n in range(len(HOSTILE))]
    plain: list[Any] = [re.sub("[\n\x1b\u202e\x00\ud800\uffff]", "�", name) for name in HOSTILE]
    assert told == plain


class Yours(BaseAdvisor):
    name = "yours"

    def before(self, request: ChatRequest) -> ChatRequest:
        return request

    def transform(self, request: ChatRequest) -> Any:
        return None

    def done(self, request: ChatRequest, outcome: Any) -> None:
        return None


def test_a_chart_begins_with_what_is_outermost() -> None:
    advisors = [Yours(), ToolCallingAdvisor(), MessageChatMemoryAdvisor(ChatMemory())]
    chart = AdvisorChain(ScriptedModel(name="yours too"), advisors).explain().mermaid()
    assert chart.split("\n")[:9] == [
        "flowchart TB",
        '  request(["request"])',
        '  subgraph a0[" "]',
        '    in0["memory<br/>order -2147483448<br/>1 before"]',
        '    m9["9 done · memory"]',
        '    subgraph a1[" "]',
        '      in1["tools<br/>order -2147483348<br/>round by round<br/>2 around"]',
        '      m6["6 around · tools"]',
        '      m8["8 around · tools"]',
    ]
