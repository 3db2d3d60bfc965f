"""The official `openai` client talks to a served chain over real HTTP: calls, streams, conversations, options, tools."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

import httpx2
import openai
import pytest

from advisorchain import (
    HIGHEST_PRECEDENCE,
    AdvisorChain,
    AroundAdvisor,
    AssistantMessage,
    BaseAdvisor,
    ChatChunk,
    ChatOptions,
    ChatRequest,
    ChatResponse,
    Next,
    StreamItem,
    ToolCall,
    ToolCallChunk,
    ToolMessage,
    Usage,
    UserMessage,
)
from advisorchain.advisors import MessageChatMemoryAdvisor, ToolCallingAdvisor
from advisorchain.client import ChatClient
from advisorchain.errors import AdvisorOrderWarning
from advisorchain.memory import ChatMemory, Fork, Reject, Serialize
from advisorchain.messages import Message
from advisorchain.options import OutputSchema, ToolDefinition
from advisorchain.server import create_app
from advisorchain.testing import ScriptedModel
from advisorchain.tools import tool

from ._serving import CLIENT_LETS_GO, HI, Ended, remembering, served

pytestmark = pytest.mark.filterwarnings(CLIENT_LETS_GO)

USAGE = Usage(3, 2, cached_tokens=1, reasoning_tokens=1)
PIECES = [ChatChunk("", reasoning="hm"), "Hel", "lo", " \u2028ü", ChatChunk(finish_reason="stop", usage=USAGE)]
TEXT = "Hello \u2028ü"


def check_usage(usage: Any) -> None:
    assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (3, 2, 5)
    assert usage.prompt_tokens_details.cached_tokens == usage.completion_tokens_details.reasoning_tokens == 1


def check_whole(answer: Any) -> None:
    (choice,) = answer.choices
    assert (choice.message.content, choice.message.role, choice.finish_reason) == (TEXT, "assistant", "stop")
    assert choice.message.reasoning_content == "hm"
    assert (answer.object, answer.model) == ("chat.completion", "demo")
    check_usage(answer.usage)


def check_pieces(pieces: list[Any]) -> None:
    deltas = [piece.choices[0].delta for piece in pieces if piece.choices]
    assert [delta.role for delta in deltas] == ["assistant"] + [None] * (len(deltas) - 1)
    assert [delta.content for delta in deltas if delta.content] == ["Hel", "lo", " \u2028ü"]
    assert [delta.reasoning_content for delta in deltas if hasattr(delta, "reasoning_content")] == ["hm"]
    assert [piece.choices[0].finish_reason for piece in pieces[-2:] if piece.choices] == ["stop"]
    assert len({(piece.id, piece.created, piece.model, piece.object) for piece in pieces}) == 1
    assert not pieces[-1].choices
    check_usage(pieces[-1].usage)


def test_the_sync_client_calls_and_streams() -> None:
    with served(AdvisorChain(ScriptedModel(PIECES, PIECES))) as server, server.sync_client() as client:
        check_whole(client.chat.completions.create(model="demo", messages=HI))
        usage: Any = {"include_usage": True}
        check_pieces(list(client.chat.completions.create(model="demo", messages=HI, stream=True, stream_options=usage)))


async def test_the_async_client_calls_and_streams() -> None:
    with served(AdvisorChain(ScriptedModel(PIECES, PIECES))) as server:
        async with server.client() as client:
            check_whole(await client.chat.completions.create(model="demo", messages=HI))
            usage: Any = {"include_usage": True}
            stream = await client.chat.completions.create(model="demo", messages=HI, stream=True, stream_options=usage)
            check_pieces([piece async for piece in stream])


async def test_the_clients_own_stream_helper_folds_what_it_gets() -> None:
    with served(AdvisorChain(ScriptedModel(PIECES))) as server:
        async with server.client() as client, client.chat.completions.stream(model="demo", messages=HI) as stream:
            whole = await stream.get_final_completion()
    assert whole.choices[0].message.content == TEXT


def test_usage_is_left_out_of_a_stream_unless_asked_for_and_where_it_was_not_told() -> None:
    with served(AdvisorChain(ScriptedModel(PIECES, ["a"], ["a"]))) as server, server.sync_client() as client:
        create = client.chat.completions.create
        assert all(piece.usage is None for piece in create(model="demo", messages=HI, stream=True))
        pieces = list(create(model="demo", messages=HI, stream=True, stream_options={"include_usage": True}))
        assert all(piece.usage is None for piece in pieces)
        assert pieces[-1].choices[0].finish_reason == "stop"
        assert create(model="demo", messages=HI).usage is None


def test_models_and_health() -> None:
    chain = AdvisorChain(ScriptedModel("a"), name="mine")
    with served(chain, model_name=None, api_key="k") as server, server.sync_client("k") as client:
        assert [model.id for model in client.models.list()] == ["mine"]
        assert client.models.retrieve("mine").owned_by == "advisorchain"
        with pytest.raises(openai.NotFoundError):
            client.models.retrieve("other")
        assert httpx2.get(f"{server.root}/healthz").json() == {"status": "ok"}
        assert client.chat.completions.create(model="mine", messages=HI).model == "mine"


# conversations


def test_a_conversation_named_by_header_or_metadata_is_remembered() -> None:
    model = ScriptedModel("one", "two", "three")
    chain, _, ended = remembering(model)
    with served(chain) as server, server.sync_client() as client:
        create = client.chat.completions.create
        named = {"Content-Type": "application/json", "X-Conversation-Id": "ünï".encode()}
        httpx2.post(f"{server.url}/chat/completions", json={"messages": HI}, headers=named)
        create(model="demo", messages=HI, metadata={"conversation_id": "ünï"})
        other = {"X-Conversation-Id": "other"}
        create(model="demo", messages=HI, metadata={"conversation_id": "ünï"}, extra_headers=other)
        assert [ended.wait() for _ in range(3)] == ["ok"] * 3
    assert [message.text for message in model.prompts[1]] == ["Hi", "one", "Hi"]
    assert [message.text for message in model.prompts[2]] == ["Hi"]  # the header wins


async def test_a_request_without_an_id_stands_for_itself_and_leaves_nothing_behind() -> None:
    chain, memory, _ = remembering(ScriptedModel("one", ["two"]))
    with served(chain) as server:
        async with server.client() as client:
            assert (await client.chat.completions.create(model="demo", messages=HI)).choices[0].message.content == "one"
            stream = await client.chat.completions.create(model="demo", messages=HI, stream=True)
            assert [piece.choices[0].delta.content async for piece in stream] == ["", "two", None]
    assert (await memory.conversations()).items == ()


async def test_a_client_is_served_with_its_system_text_options_and_memory() -> None:
    model, memory = ScriptedModel("one", "two", ["three"]), ChatMemory()
    chat = ChatClient(model, system="Be brief.", memory=memory, options=ChatOptions(temperature=0.5), name="mine")
    with served(chat, model_name=None) as server, server.sync_client() as client:
        named = {"X-Conversation-Id": "c"}
        for text in ("one", "two"):
            answer = client.chat.completions.create(model="mine", messages=HI, extra_headers=named, seed=1)
            assert answer.choices[0].message.content == text
        pieces = list(client.chat.completions.create(model="mine", messages=HI, stream=True))
    assert [piece.choices[0].delta.content for piece in pieces] == ["", "three", None]
    assert [message.text for message in model.prompts[1]] == ["Be brief.", "Hi", "one", "Hi"]
    assert [message.text for message in model.prompts[2]] == ["Be brief.", "Hi"]
    assert [request.options.temperature for request in model.requests] == [0.5] * 3
    assert model.requests[0].options.seed == 1
    assert await memory.count("c") == 4


async def test_a_page_that_sends_the_whole_history_has_it_told_and_stored_once() -> None:
    model = ScriptedModel("one", "two")
    chain, memory, _ = remembering(model)
    with served(chain) as server, server.sync_client() as client:
        shown: list[Any] = [{"role": "system", "content": "Be brief."}]
        for question in ("first", "second"):
            shown.append({"role": "user", "content": question})
            headers = {"X-Conversation-Id": "page"}
            answer = client.chat.completions.create(model="demo", messages=shown, extra_headers=headers)
            shown.append(answer.choices[0].message.model_dump(exclude_none=True))
    assert [message.text for message in model.prompts[1]] == ["Be brief.", "first", "one", "second"]
    assert [message.text for message in await memory.get("page")][-4:] == ["first", "one", "second", "two"]
    assert await memory.count("page") == 4


async def test_the_chain_without_its_memory_is_built_once_and_warns_once() -> None:
    class Picky(BaseAdvisor):
        name, order = "picky", HIGHEST_PRECEDENCE
        asked = 0

        def before(self, request: ChatRequest) -> ChatRequest:
            return request

        def misplaced(self, inner: tuple[Any, ...]) -> str:
            Picky.asked += 1
            return "it never fits"

    with pytest.warns(AdvisorOrderWarning):
        chains = [
            AdvisorChain(ScriptedModel("a", "b"), [MessageChatMemoryAdvisor(ChatMemory()), Picky(), Ended()]),
            ChatClient(ScriptedModel("a", "b"), memory=ChatMemory(), advisors=[Picky(), Ended()]),
        ]
    apps = [create_app(chain) for chain in chains]  # warnings are errors here
    built = Picky.asked
    for app in apps:
        async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost/v1") as client:
            for text in ("a", "b"):
                answer = (await client.post("/chat/completions", json={"messages": HI})).json()
                assert answer["choices"][0]["message"]["content"] == text
    assert Picky.asked == built


# options


def test_options_reach_the_model() -> None:
    model = ScriptedModel("a", "b", '{"x": 1}', strict=False)
    schema: dict[str, Any] = {"type": "object", "properties": {"x": {"type": "integer"}}}
    tool: Any = {
        "type": "function",
        "function": {"name": "look", "description": "Looks.", "parameters": schema, "strict": True},
    }
    with served(AdvisorChain(model)) as server, server.sync_client() as client:
        create = client.chat.completions.create
        create(
            model="demo",
            messages=HI,
            temperature=0,
            top_p=0.5,
            max_completion_tokens=7,
            max_tokens=9,
            stop=["x", "y"],
            seed=3,
            presence_penalty=0.1,
            frequency_penalty=0.2,
            tools=[tool],
            tool_choice={"type": "function", "function": {"name": "look"}},
            n=1,
            logit_bias={},
            logprobs=False,
            parallel_tool_calls=True,
            user="ada",
            store=False,
        )
        create(model="demo", messages=HI, max_tokens=9, stop="x", tool_choice="required", response_format={"type": "text"})
        named: Any = {"type": "json_schema", "json_schema": {"name": "point", "description": "A point.", "schema": schema}}
        create(model="demo", messages=HI, response_format=named)
    first, second, third = (request.options for request in model.requests)
    assert first == ChatOptions(
        temperature=0.0,
        top_p=0.5,
        max_tokens=7,
        stop=("x", "y"),
        seed=3,
        presence_penalty=0.1,
        frequency_penalty=0.2,
        tools=(ToolDefinition("look", "Looks.", parameters=schema, strict=True),),
        tool_choice="look",
    )
    assert second == ChatOptions(max_tokens=9, stop=("x",), tool_choice="required")
    assert third.output in (None, OutputSchema(schema, "point", "A point."))
    assert "properties" in model.prompts[2][0].text or third.output is not None


# tools, loops, withdrawn attempts


CALL = ToolCall("c1", "look", '{"x": 1}')
CALLING = [
    "Let me see. ",
    ChatChunk(tool_calls=(ToolCallChunk(0, "c1", "look", '{"x"'),)),
    ChatChunk(tool_calls=(ToolCallChunk(0, arguments=": 1}"),), finish_reason="tool_calls"),
]


def test_tool_calls_go_out_and_results_come_in() -> None:
    model = ScriptedModel(CALLING, CALLING, "It is 1.")
    with served(AdvisorChain(model)) as server, server.sync_client() as client:
        whole = client.chat.completions.create(model="demo", messages=HI).choices[0]
        with client.chat.completions.stream(model="demo", messages=HI) as stream:
            streamed = stream.get_final_completion().choices[0]
        for choice in (whole, streamed):
            assert (choice.message.content, choice.finish_reason) == ("Let me see. ", "tool_calls")
            (call,) = choice.message.tool_calls or ()
            assert (call.id, call.type) == ("c1", "function")
            assert (call.function.name, call.function.arguments) == ("look", '{"x": 1}')
        back: list[Any] = [*HI, whole.message.model_dump(exclude_none=True)]
        back.append({"role": "tool", "tool_call_id": "c1", "content": "1"})
        assert client.chat.completions.create(model="demo", messages=back).choices[0].message.content == "It is 1."
    assert model.prompts[2] == (
        UserMessage("Hi"),
        AssistantMessage("Let me see. ", tool_calls=(CALL,)),
        ToolMessage("1", tool_call_id="c1"),
    )


class Loop(AroundAdvisor):
    """Runs the tool of the first round itself."""

    name = "loop"

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        async with aclosing(next(request)) as items:
            async for item in items:
                if isinstance(item, ChatResponse):
                    first = item
                else:
                    yield item
        result = ToolMessage("1", tool_call_id="c1")
        yield ChatChunk(tool_result=result)
        made: tuple[Message, ...] = (first.message, result)
        begun = False
        async with aclosing(next(request.replace(messages=(*request.messages, *made), made=2, round=2))) as items:
            async for item in items:
                if isinstance(item, ChatResponse):
                    yield item.replace(earlier=(first.message, result))
                    continue
                if not begun:
                    yield ChatChunk(boundary="round")
                    begun = True
                yield item


async def test_what_the_chain_runs_itself_is_not_the_clients() -> None:
    model = ScriptedModel(CALLING, ["It is ", "1."], CALLING, "It is 1.")
    with served(AdvisorChain(model, [Loop()])) as server:
        async with server.client() as client:
            stream = await client.chat.completions.create(model="demo", messages=HI, stream=True)
            pieces = [piece async for piece in stream]
            whole = await client.chat.completions.create(model="demo", messages=HI)
    deltas = [piece.choices[0].delta for piece in pieces]
    assert [delta.content for delta in deltas if delta.content] == ["Let me see. ", "\n\nIt is ", "1."]
    assert not any(delta.tool_calls for delta in deltas)
    marks = [piece.model_extra["advisorchain"] for piece in pieces if "advisorchain" in (piece.model_extra or {})]
    assert marks == [{"boundary": "round"}]
    assert [piece.choices[0].finish_reason for piece in pieces] == [None] * (len(pieces) - 1) + ["stop"]
    assert (whole.choices[0].message.content, whole.choices[0].message.tool_calls) == ("It is 1.", None)


class Again(AroundAdvisor):
    """Withdraws the first attempt."""

    name = "again"

    async def around(self, request: ChatRequest, next: Next) -> AsyncGenerator[StreamItem, None]:
        async with aclosing(next(request)) as items:
            async for item in items:
                if not isinstance(item, ChatResponse):
                    yield item
        begun = False
        async with aclosing(next(request)) as items:
            async for item in items:
                if not begun and not isinstance(item, ChatResponse):
                    yield ChatChunk(boundary="attempt", withdraws=1)
                    begun = True
                yield item


async def test_a_withdrawn_attempt_is_marked_and_never_part_of_json() -> None:
    model = ScriptedModel(["{ba", "d"], ['{"a"', ": 1}"], ["{ba", "d"], ['{"a"', ": 1}"])
    named: Any = {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}}
    with served(AdvisorChain(model, [Again()])) as server:
        async with server.client() as client:
            create = client.chat.completions.create
            plain = [piece async for piece in await create(model="demo", messages=HI, stream=True)]
            json = [piece async for piece in await create(model="demo", messages=HI, stream=True, response_format=named)]
    assert [piece.choices[0].delta.content for piece in plain if piece.choices[0].delta.content] == [
        *("{ba", "d"),
        *('\n\n{"a"', ": 1}"),
    ]
    marks = [piece.model_extra["advisorchain"] for piece in plain if "advisorchain" in (piece.model_extra or {})]
    assert marks == [{"boundary": "attempt", "withdraws": 1}]
    assert [piece.choices[0].delta.content for piece in json if piece.choices[0].delta.content] == ['{"a": 1}']


class Harbour:
    """Tools that note what they did."""

    def __init__(self) -> None:
        self.ran: list[str] = []

    def tools(self) -> list[Any]:
        @tool
        def tide(port: str) -> str:
            """When the tide is high."""
            self.ran.append(f"tide {port}")
            return "at noon"

        @tool(needs_approval=True)
        def sink(ship: str) -> str:
            """Sink a ship."""
            self.ran.append(f"sink {ship}")
            return "sunk"

        return [tide, sink]


def asking(*calls: ToolCall) -> list[str | ChatChunk]:
    pieces = tuple(ToolCallChunk(place, call.id, call.name, call.arguments) for place, call in enumerate(calls))
    return ["Let me see. ", ChatChunk(tool_calls=pieces, finish_reason="tool_calls", usage=Usage(3, 2))]


TIDE, SINK = ToolCall("c1", "tide", '{"port": "Brest"}'), ToolCall("c2", "sink", '{"ship": "secret"}')


async def test_a_tool_loop_is_one_answer_to_the_client() -> None:
    said: list[Any] = ["It is ", "at noon.", ChatChunk(finish_reason="stop", usage=Usage(5, 4))]
    harbour = Harbour()
    chain, memory, _ = remembering(
        ScriptedModel(asking(TIDE), said, asking(TIDE), said), ToolCallingAdvisor(harbour.tools())
    )
    named = {"X-Conversation-Id": "c"}
    with served(chain) as server:
        async with server.client() as client:
            create = client.chat.completions.create
            whole = await create(model="demo", messages=HI, extra_headers=named)
            usage: Any = {"include_usage": True}
            stream = await create(model="demo", messages=HI, extra_headers=named, stream=True, stream_options=usage)
            pieces = [piece async for piece in stream]
    assert (whole.choices[0].message.content, whole.choices[0].finish_reason) == ("It is at noon.", "stop")
    assert whole.choices[0].message.tool_calls is None
    deltas = [piece.choices[0].delta for piece in pieces if piece.choices]
    assert [delta.content for delta in deltas if delta.content] == ["Let me see. ", "\n\nIt is ", "at noon."]
    assert not any(delta.tool_calls for delta in deltas)
    marks = [piece.model_extra["advisorchain"] for piece in pieces if "advisorchain" in (piece.model_extra or {})]
    assert marks == [{"boundary": "round"}]
    assert [piece.choices[0].finish_reason for piece in pieces[-2:] if piece.choices] == ["stop"]
    for told in (whole.usage, pieces[-1].usage):
        assert told is not None
        assert (told.prompt_tokens, told.completion_tokens) == (8, 6)
    assert harbour.ran == ["tide Brest"] * 2
    assert [message.text for message in await memory.get("c")] == ["Hi", "It is at noon."] * 2


async def test_a_paused_turn_is_marked_and_its_calls_are_not_the_clients() -> None:
    harbour = Harbour()
    chain, memory, _ = remembering(
        ScriptedModel(asking(TIDE, SINK), asking(TIDE, SINK)), ToolCallingAdvisor(harbour.tools())
    )
    named = {"X-Conversation-Id": "c"}
    with served(chain) as server:
        async with server.client() as client:
            whole = await client.chat.completions.create(model="demo", messages=HI, extra_headers=named)
            stream = await client.chat.completions.create(model="demo", messages=HI, extra_headers=named, stream=True)
            pieces = [piece async for piece in stream]
    (choice,) = whole.choices
    assert (choice.message.content, choice.message.tool_calls, choice.finish_reason) == ("Let me see. ", None, "stop")
    assert "".join(piece.choices[0].delta.content or "" for piece in pieces) == "Let me see. "
    assert not any(piece.choices[0].delta.tool_calls for piece in pieces)
    assert [piece.choices[0].finish_reason for piece in pieces if piece.choices[0].finish_reason] == ["stop"]
    for told in (whole, pieces[-1]):
        assert (told.model_extra or {})["advisorchain"] == {"paused": [{"id": "c2", "name": "sink"}]}
        assert "secret" not in told.model_dump_json()
    assert harbour.ran == ["tide Brest"] * 2
    assert await memory.count("c") == 0


async def test_a_turn_on_a_branch_tells_its_conversation() -> None:
    memory = ChatMemory(concurrency=Fork())
    await memory.add("c", UserMessage("before"))
    await memory.begin("c", [])  # another turn is under way
    chain = AdvisorChain(ScriptedModel("one", "two"), [MessageChatMemoryAdvisor(memory)])
    named = {"X-Conversation-Id": "c"}
    with served(chain) as server:
        async with server.client() as client:
            whole = await client.chat.completions.create(model="demo", messages=HI, extra_headers=named)
            stream = await client.chat.completions.create(model="demo", messages=HI, extra_headers=named, stream=True)
            pieces = [piece async for piece in stream]
    for told, answer in ((whole, "one"), (pieces[-1], "two")):
        branch = (told.model_extra or {})["advisorchain"]["conversation_id"]
        assert [message.text for message in await memory.get(branch)] == ["before", "Hi", answer]
    assert all("advisorchain" not in (piece.model_extra or {}) for piece in pieces[:-1])
    assert await memory.count("c") == 1


@pytest.mark.parametrize("rule", [Reject(), Serialize(wait=0)], ids=repr)
async def test_a_conversation_that_is_busy_is_a_conflict_of_its_own(rule: Any) -> None:
    memory = ChatMemory(concurrency=rule)
    await memory.begin("c", [])
    chain = AdvisorChain(ScriptedModel(), [MessageChatMemoryAdvisor(memory)])
    with served(chain) as server:
        async with server.client() as client:
            with pytest.raises(openai.ConflictError, match="another turn of this conversation is under way") as raised:
                await client.chat.completions.create(model="demo", messages=HI, extra_headers={"X-Conversation-Id": "c"})
    assert raised.value.code == "conversation_busy"


@pytest.mark.parametrize(
    ("told", "said"),
    [("stop", "stop"), ("max_tokens", "length"), ("content_filter", "content_filter"), ("end_turn", "stop"), (None, "stop")],
)
def test_finish_reasons_are_openais(told: str | None, said: str) -> None:
    model = ScriptedModel(ChatResponse("a", finish_reason=told), ["a", ChatChunk(finish_reason=told)])
    with served(AdvisorChain(model)) as server, server.sync_client() as client:
        assert client.chat.completions.create(model="demo", messages=HI).choices[0].finish_reason == said
        pieces = list(client.chat.completions.create(model="demo", messages=HI, stream=True))
    assert pieces[-1].choices[0].finish_reason == said


def test_a_refusal_is_told_as_one() -> None:
    refusing = [ChatChunk(refusal="I will "), ChatChunk(refusal="not.")]
    with served(AdvisorChain(ScriptedModel(refusing, refusing))) as server, server.sync_client() as client:
        message = client.chat.completions.create(model="demo", messages=HI).choices[0].message
        pieces = list(client.chat.completions.create(model="demo", messages=HI, stream=True))
    assert message.refusal == "I will not."
    assert [piece.choices[0].delta.refusal for piece in pieces if piece.choices[0].delta.refusal] == ["I will ", "not."]
