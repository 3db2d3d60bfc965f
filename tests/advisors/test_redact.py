"""Redaction: the model sees placeholders, the reader sees them or the originals, wherever the pieces end."""

from __future__ import annotations

import json
import random
import re
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from time import process_time
from typing import Any

import anyio
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from pydantic import BaseModel

from advisorchain.advisors import MessageChatMemoryAdvisor, RedactAdvisor
from advisorchain.advisors._ready_patterns import READY_PATTERNS
from advisorchain.chain import AdvisorChain
from advisorchain.client import ChatClient
from advisorchain.errors import AdvisorOrderWarning, ConfigurationError
from advisorchain.exchange import ChatChunk, ChatRequest, ToolCallChunk
from advisorchain.memory import ChatMemory
from advisorchain.messages import (
    AssistantMessage,
    FilePart,
    ImagePart,
    RefusalPart,
    SystemMessage,
    TextPart,
    ToolCall,
    ToolMessage,
    UserMessage,
    dump_message,
)
from advisorchain.testing import RecordingAdvisor, ScriptedModel, check_advisor

from .._asking import MODES, HandLoop, Mode, ask, asking, stored, texts

STOP = ChatChunk(finish_reason="stop")


def seen_with(patterns: list[Any], *prompt: Any, **more: Any) -> ChatRequest:
    advisor = RedactAdvisor(patterns, **more)
    return advisor.before(ChatRequest(tuple(prompt)))


def hidden(patterns: list[Any], text: str) -> str:
    return seen_with(patterns, UserMessage(text)).messages[0].text


# --- making one -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "patterns",
    [None, "email", [], ["phone"], ["email", "email"], [("a b", "x")], [("x", "")], [("x", "(")], [3], [("x",)]],
    ids=repr,
)
def test_patterns_that_cannot_work_are_refused(patterns: Any) -> None:
    with pytest.raises(ConfigurationError, match="`patterns"):
        RedactAdvisor(patterns)


def test_a_dict_gives_pairs() -> None:
    assert hidden(["email", *{"ticket": re.compile("t-[0-9]+", re.IGNORECASE)}.items()], "T-7") == "[ticket-1]"


# --- the ready patterns -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Write to bob@example.com.", "Write to [email-1]."),
        ("<Ann.O+x@mail.example.co.uk>, 'a@b.de'", "<[email-1]>, '[email-2]'"),
        ("https://x.example/?to=bob@example.com&a=b", "https://x.example/?to=[email-1]&a=b"),
        ("jörg@müller.example", "[email-1]"),
        ("bob@localhost, @name, a@b.c, 3@4.5", "bob@localhost, @name, a@b.c, 3@4.5"),
        ("|a@x.de|b@x.de| **c@x.de**", "|[email-1]|[email-2]| **[email-3]**"),
        ("a@x.de.b@x.de, a@x.de-b@x.de c@x.de", "[email-1], [email-2] [email-3]"),  # no part of the second is left
        ("mail a@x.de-now, or b@x.de.", "mail [email-1], or [email-2]."),
    ],
)
def test_email_addresses(text: str, expected: str) -> None:
    assert hidden(["email"], text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [  # the test numbers that card schemes publish
        ("4111111111111111", "[card-1]"),
        ("4111 1111 1111 1111 12/27", "[card-1] 12/27"),
        ("3782-822463-10005, 6011111111111117", "[card-1], [card-2]"),
        ("No. 12 4111 1111 1111 1111", "No. 12 [card-1]"),
        ("4222222222222", "[card-1]"),
        ("4111111111111112", "4111111111111112"),
        ("0000000000000000", "0000000000000000"),
        ("41111111111111111111111", "41111111111111111111111"),
        ("+44 20 7946 0018", "+44 20 7946 0018"),
    ],
)
def test_card_numbers(text: str, expected: str) -> None:
    assert hidden(["card"], text) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [  # examples of the IBAN registry
        ("DE89370400440532013000", "[iban-1]"),
        ("DE89 3704 0044 0532 0130 00 of Bob", "[iban-1] of Bob"),
        ("BE68 5390 0754 7034 from BANK", "[iban-1] from BANK"),
        ("NO93 8601 1117 947, gb82west12345698765432", "[iban-1], [iban-2]"),
        ("MT84MALT011000012345MTLCAST001S", "[iban-1]"),
        ("DE89370400440532013001", "DE89370400440532013001"),
        ("XDE89370400440532013000", "XDE89370400440532013000"),
    ],
)
def test_bank_accounts(text: str, expected: str) -> None:
    assert hidden(["iban"], text) == expected


# --- the prompt -------------------------------------------------------------------------------------------------------


def test_every_message_that_goes_to_the_model_is_redacted() -> None:
    image = ImagePart("https://x.example/a.png")
    request = seen_with(
        ["email"],
        SystemMessage("You write to a@x.de."),
        UserMessage((TextPart("I am b@x.de"), image)),
        AssistantMessage("Hi b@x.de", tool_calls=(ToolCall("1", "mail", '{"to": ["b@x.de", {"c@x.de": 1}]}'),)),
        ToolMessage("sent to c@x.de", tool_call_id="1"),
        UserMessage("nothing"),
    )
    system, user, answer, result, last = request.messages
    assert system.text == "You write to [email-1]."
    assert user.content == (TextPart("I am [email-2]"), image)
    assert isinstance(answer, AssistantMessage)
    assert (answer.text, json.loads(answer.tool_calls[0].arguments)) == (
        "Hi [email-2]",
        {"to": ["[email-2]", {"[email-3]": 1}]},
    )
    assert (result.text, last.text) == ("sent to [email-3]", "nothing")


def test_R16_all_text_that_a_model_is_sent_is_redacted() -> None:
    request = seen_with(
        ["email"],
        SystemMessage("hi", name="a@x.de"),
        UserMessage(
            (TextPart("hi"), FilePart(data=b"x", name="cv a@x.de.pdf"), FilePart(file_id="f", name="b.pdf")), name="a@x.de"
        ),
        AssistantMessage("no", refusal="I do not write to a@x.de", name="a@x.de"),
        AssistantMessage((RefusalPart("nor to a@x.de"), TextPart("hi"))),
        restore=True,
    )
    assert "a@x.de" not in "".join(map(dump_message, request.messages))
    _, user, refusing, parts = request.messages
    assert user.content[1:] == (
        FilePart(data=b"x", name="cv [email-2]", media_type="application/pdf"),
        FilePart(file_id="f", name="b.pdf"),
    )
    assert isinstance(refusing, AssistantMessage)
    assert (refusing.refusal, refusing.name) == ("I do not write to [email-1]", "[email-1]")
    assert parts.content == (RefusalPart("nor to [email-1]"), TextPart("hi"))


def test_R16_what_is_sent_as_it_was() -> None:
    file = FilePart(url="https://x.example/a@x.de")
    call = ToolCall("a@x.de", "a@x.de")
    messages = (
        UserMessage((file,), metadata={"of": "a@x.de"}),
        AssistantMessage(reasoning="a@x.de", tool_calls=(call,), metadata={"anthropic": ["a@x.de"]}),
        ToolMessage("done", tool_call_id="a@x.de", name="a@x.de", structured={"to": "a@x.de"}),
    )
    assert seen_with(["email"], *messages).messages == messages


def test_arguments_stay_json_and_numbers_are_looked_into() -> None:
    call = ToolCall("1", "pay", '{"card": 4111111111111111, "ok": true, "note": "a \\"b\\""}')
    broken = ToolCall("2", "pay", '{"card": 4111111111111111')
    patterns = ["card", ("quoted", '"b"')]
    (message,) = seen_with(patterns, AssistantMessage(tool_calls=(call, broken))).messages
    assert isinstance(message, AssistantMessage)
    assert message.tool_calls[0].parsed() == {"card": "[card-1]", "ok": True, "note": "a [quoted-1]"}
    assert message.tool_calls[1].arguments == '{"card": [card-1]'


@pytest.mark.parametrize("mode", MODES)
async def test_memory_further_out_keeps_the_question_as_it_was(mode: Mode) -> None:
    memory = ChatMemory()
    model = ScriptedModel("I write to [email-1].", "And to [email-1] again.")
    chain = AdvisorChain(model, [MessageChatMemoryAdvisor(memory), RedactAdvisor(["email"], restore=True)])
    await ask(mode, chain, "I am b@x.de", conversation_id="c")
    await ask(mode, chain, "Go on", conversation_id="c")
    assert texts(model.prompts[-1]) == ["I am [email-1]", "I write to [email-1].", "Go on"]
    assert texts(await stored(memory)) == ["I am b@x.de", "I write to b@x.de.", "Go on", "And to b@x.de again."]


# --- the answer -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
async def test_without_restore_the_answer_is_redacted_too(mode: Mode) -> None:
    pieces = ["Ask bo", "b@exam", "ple.com, or ", "[email-1]", STOP]
    chunks: list[ChatChunk] = []
    response = await ask(mode, AdvisorChain(ScriptedModel(pieces), [RedactAdvisor(["email"])]), "from a@x.de", chunks)
    assert response.text == "Ask [email-2], or [email-1]"
    assert mode == "call" or "".join(chunk.text for chunk in chunks) == response.text


async def test_only_what_may_become_a_match_is_held() -> None:
    pieces = ["Please ask ", "[em", "ail-1] or [", "x], thanks"]
    chunks: list[ChatChunk] = []
    chain = AdvisorChain(ScriptedModel([*pieces, STOP]), [RedactAdvisor(["email"], restore=True)])
    await ask("stream", chain, "a@x.de", chunks)
    assert [chunk.text for chunk in chunks if chunk.text] == ["Please ask ", "a@x.de or ", "[x], thanks"]


@pytest.mark.parametrize("mode", MODES)
async def test_each_message_of_a_loop_begins_anew(mode: Mode) -> None:
    model = ScriptedModel(asking(("1", "clock", "{}"), text="bob"), "cat")
    chain = AdvisorChain(model, [RedactAdvisor([("pet", r"\bcat\b")], order=-(2**31)), HandLoop(clock=lambda: "12:00")])
    response = await ask(mode, chain, "hi")
    assert [message.text for message in response.turn] == ["bob", "12:00", "[pet-1]"]


@pytest.mark.parametrize("restore", [False, True])
@pytest.mark.parametrize("mode", MODES)
async def test_tools_get_the_originals_only_with_restore(mode: Mode, restore: bool) -> None:
    got: list[str] = []
    model = ScriptedModel(asking(("1", "mail", '{"to": "[email-1]"}')), "Sent to [email-1].")
    loop = HandLoop(mail=lambda to: got.append(to) or f"sent to {to}")
    chain = AdvisorChain(model, [loop, RedactAdvisor(["email"], restore=restore)])
    chunks: list[ChatChunk] = []
    response = await ask(mode, chain, 'I am "a"@x.de, or a@x.de', chunks)
    wanted = "a@x.de" if restore else "[email-1]"
    assert (got, response.text) == ([wanted], f"Sent to {wanted}.")
    assert "a@x.de" not in repr([(m.text, getattr(m, "tool_calls", ())) for m in model.prompts[-1]])
    pieces = [piece.arguments for chunk in chunks for piece in chunk.tool_calls]
    assert mode == "call" or pieces == ['{"to": "[email-1]"}']


async def test_an_original_is_put_into_arguments_as_json() -> None:
    model = ScriptedModel([ChatChunk(tool_calls=(ToolCallChunk(0, "1", "t", '{"a": "[q-1]"}'),)), STOP])
    chain = AdvisorChain(model, [RedactAdvisor([("q", r'"[^"]*\\"')], restore=True)])
    response = await chain.call('say "it\\"')
    assert response.message.tool_calls[0].parsed() == {"a": '"it\\"'}


async def test_a_placeholder_that_the_user_wrote_stays_text() -> None:
    model = ScriptedModel("You wrote [email-1], I know [email-2].")
    chain = AdvisorChain(model, [RedactAdvisor(["email"], restore=True)])
    response = await chain.call("What is [email-1]? I am a@x.de")
    assert texts(model.prompts[0]) == ["What is [email-1]? I am [email-2]"]
    assert response.text == "You wrote [email-1], I know a@x.de."


def test_a_placeholder_is_free_only_where_none_of_the_prompts_texts_has_it() -> None:
    spelt = ToolCall("1", "mail", '{"to": "\\u005bemail-1]"}')
    request = seen_with(
        ["email"], AssistantMessage(refusal="[email-2]", tool_calls=(spelt,)), UserMessage("a@x.de"), restore=True
    )
    assert request.messages[1].text == "[email-3]"


@pytest.mark.parametrize("names", [("a", "a-1"), ("a-1", "a")])
async def test_names_that_look_like_placeholders_do_no_harm(names: tuple[str, str]) -> None:
    patterns = [(names[0], "x"), (names[1], "y")]
    chain = AdvisorChain(ScriptedModel("[a-1] [a-1-1] [a-1-1-1]"), [RedactAdvisor(patterns, restore=True)])
    wanted = {"a": "x", "a-1": "y"} if names[0] == "a" else {"a-1": "x", "a": "y"}
    assert (await chain.call("x y")).text == f"{wanted['a']} {wanted['a-1']} [a-1-1-1]"


# --- where it stands --------------------------------------------------------------------------------------------------


def test_around_memory_it_is_told_when_the_chain_is_built() -> None:
    memory = MessageChatMemoryAdvisor(ChatMemory(), order=2000)
    with pytest.warns(AdvisorOrderWarning, match="`redact`.*`memory`, which is further in, keeps placeholders"):
        AdvisorChain(ScriptedModel(), [RedactAdvisor(["email"]), memory])
    AdvisorChain(ScriptedModel(), [RedactAdvisor(["email"]), MessageChatMemoryAdvisor(ChatMemory())])
    assert RedactAdvisor.hides_content


# --- what it costs ----------------------------------------------------------------------------------------------------


def spent(work: Callable[[], object]) -> float:
    def once() -> float:
        begun = process_time()
        work()
        return process_time() - begun

    return min(once() for _ in range(3))


def prose(words: int) -> str:
    choice = random.Random(1).choice
    return " ".join(choice(["lorem", "ipsum", "dolor", "sit", "amet.", "2024", "4111 1111", "the"]) for _ in range(words))


@pytest.mark.parametrize("kind", list(READY_PATTERNS))
@pytest.mark.parametrize("text", [prose(5000), "1" * 30_000, "a" * 30_000], ids=["prose", "digits", "letters"])
def test_R13_a_whole_text_costs_little_more_than_re(kind: str, text: str) -> None:
    expressions = [re.compile(expression) for expression in READY_PATTERNS[kind].expressions]
    bare = spent(lambda: [list(expression.finditer(text)) for expression in expressions])
    advisor = RedactAdvisor([kind], restore=True)
    request = ChatRequest((UserMessage(text),))
    assert spent(lambda: advisor.before(request)) < 4 * bare + 0.002  # a character followed by hand costs 20 times as much


@pytest.mark.parametrize("restore", [False, True])
def test_R13_and_R14_many_values_cost_no_more_each_than_few(restore: bool) -> None:
    def asked(values: int) -> None:
        advisor = RedactAdvisor(["email", "card"], restore=restore)
        request = advisor.before(ChatRequest((UserMessage(" ".join(f"u{number}@x.de" for number in range(values))),)))
        call = ToolCall("1", "t", json.dumps([f"[email-{number}]" for number in range(values)]))
        advisor.before(ChatRequest((AssistantMessage(tool_calls=(call,)),)))
        transform = advisor.transform(request)
        assert transform is not None
        for number in range(values):
            transform.feed(f"see [email-{number}] or u{number}@x.de, ")
        transform.flush()

    assert spent(lambda: asked(2000)) < 9 * spent(lambda: asked(500))


# --- nothing leaks ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", MODES)
async def test_what_stands_for_what_is_neither_told_nor_in_the_context(mode: Mode) -> None:
    log: list[Any] = []
    inner = RecordingAdvisor("inner", 10_000, log)
    chain = AdvisorChain(ScriptedModel("[email-1]"), [RedactAdvisor(["email"], restore=True), inner])
    response = await ask(mode, chain, "a@x.de", context={"k": "v"})
    assert response.context == {"k": "v"}
    assert not response.metadata
    request = seen_with(["email"], UserMessage("a@x.de"), restore=True)
    assert "a@x.de" not in repr(request) + repr(request.local["redact"]) + repr(dict(request.local))
    assert not request.context


async def test_two_calls_at_once_do_not_share_placeholders() -> None:
    advisor = RedactAdvisor(["email"], restore=True)
    chain = AdvisorChain(ScriptedModel("[email-1]", repeat=True), [advisor])
    said: dict[str, str] = {}

    async def one(address: str) -> None:
        said[address] = (await chain.call(address)).text

    async with anyio.create_task_group() as group:
        for number in range(5):
            group.start_soon(one, f"u{number}@x.de")
    assert all(address == text for address, text in said.items())
    assert len(said) == 5


# --- any pieces -------------------------------------------------------------------------------------------------------

SAID = st.lists(
    st.sampled_from(["a@x.de", "[email-1]", "[email-", "1]", "[", "b@", "x.de", " ", ".", "[card-1]"]), max_size=8
)
CARD = "4111 1111 1111 1111"


async def said_and_kept(pieces: Sequence[str], restore: bool) -> tuple[str, str, str, str]:
    memory = ChatMemory()
    model = ScriptedModel([*pieces, STOP], [*pieces, STOP])
    redact = RedactAdvisor(["email", "card"], restore=restore)
    chain = AdvisorChain(model, [MessageChatMemoryAdvisor(memory), redact])
    prompt = f"I am a@x.de, my card is {CARD}"
    called = await chain.call(prompt, conversation_id="called")
    chunks: list[ChatChunk] = []
    response = await ask("stream", chain, prompt, chunks, conversation_id="c")
    kept = texts(await stored(memory))[-1]
    return "".join(chunk.text for chunk in chunks), response.text, called.text, kept


ANY_PIECES = {"said": SAID, "restore": st.booleans(), "backend": st.sampled_from(["asyncio", "trio"]), "data": st.data()}


def redacted(text: str) -> str:
    """What `re` makes of the whole text. The prompt's address has the first number; others have theirs as they come."""
    numbers = {"a@x.de": 1}
    (email,) = READY_PATTERNS["email"].expressions
    return re.sub(email, lambda match: f"[email-{numbers.setdefault(match[0], len(numbers) + 1)}]", text)


def check_any_pieces(said: list[str], restore: bool, backend: str, data: Any) -> None:
    text = "".join(said)
    cuts = [0, *sorted(data.draw(st.sets(st.integers(0, len(text))))), len(text)]
    pieces = [text[start:end] for start, end in pairwise(cuts)]
    texts_ = anyio.run(partial(said_and_kept, pieces, restore), backend=backend)
    assert len(set(texts_)) == 1
    if restore:
        assert texts_[0] == text.replace("[email-1]", "a@x.de").replace("[card-1]", CARD)
    else:
        assert texts_[0] == redacted(text)


@settings(max_examples=60, deadline=None)
@given(**ANY_PIECES)
def test_any_pieces_give_one_text_everywhere(said: list[str], restore: bool, backend: str, data: Any) -> None:
    check_any_pieces(said, restore, backend, data)


@pytest.mark.slow
@settings(max_examples=300, deadline=None)
@given(**ANY_PIECES)
def test_many_pieces_give_one_text_everywhere(said: list[str], restore: bool, backend: str, data: Any) -> None:
    check_any_pieces(said, restore, backend, data)


# --- typed answers ----------------------------------------------------------------------------------------------------


class Place(BaseModel):
    path: str
    also: list[str]


async def typed_both(value: str, size: int) -> tuple[list[Place], list[Any]]:
    text = '{"path": "at [v-1]", "also": ["[v-1]", "[v-2]"]}'
    pieces = [text[at : at + size] for at in range(0, len(text), size)]
    memory = ChatMemory()
    redact = RedactAdvisor([("v", re.escape(f"<{value}>"))], restore=True)
    client = ChatClient(ScriptedModel([*pieces, STOP], [*pieces, STOP]), memory=memory, advisors=[redact])
    prompt = f"Where is <{value}>?"
    called = await client.call(prompt, output_type=Place, conversation_id="called")
    async with client.stream(prompt, output_type=Place, conversation_id="c") as stream:
        partials = [partial async for partial in stream.partials()]
    kept = Place.model_validate_json(texts(await stored(memory))[-1])
    return [called.output, stream.output, kept], partials


@settings(max_examples=80, deadline=None)
@given(
    value=st.text(st.sampled_from('a\\u"\\\n\tntß😀\x00/{}') | st.characters(codec="utf-8"), max_size=12),
    size=st.integers(1, 60),
    backend=st.sampled_from(["asyncio", "trio"]),
)
@example(value="C:\\temp\\new", size=3, backend="asyncio")
@example(value="C:\\users", size=3, backend="asyncio")
@example(value='the "best"\none', size=3, backend="trio")
def test_originals_are_put_into_a_typed_answer_as_json(value: str, size: int, backend: str) -> None:
    outputs, partials = anyio.run(partial(typed_both, value, size), backend=backend)
    wanted = Place(path=f"at <{value}>", also=[f"<{value}>", "[v-2]"])
    assert outputs == [wanted] * 3
    assert partials[-1] == wanted.model_dump()


async def test_originals_are_put_into_text_as_they_are() -> None:
    chain = AdvisorChain(ScriptedModel("at [v-1]"), [RedactAdvisor([("v", r"C:\S+")], restore=True)])
    assert (await chain.call('C:\\temp\\"new"')).text == 'at C:\\temp\\"new"'


# --- laws -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("restore", [False, True])
@pytest.mark.parametrize(
    "script", [("One, two.",), ("Ask [email-1] or bob@example.com, not [email-2].",)], ids=["plain", "found"]
)
async def test_the_redaction_keeps_the_laws(restore: bool, script: tuple[str, ...]) -> None:
    await check_advisor(lambda: RedactAdvisor(["email"], restore=restore), prompt="I am a@x.de.", script=script)
