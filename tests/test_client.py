"""The client: its prompts, its settings and how a call changes them, typed answers."""

from __future__ import annotations

import copy
import inspect
import pickle
import subprocess
import sys
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any

import pytest
from pydantic import BaseModel
from typing_extensions import TypedDict

from advisorchain import (
    AssistantMessage,
    ChatChunk,
    ChatOptions,
    ChatRequest,
    ChatResponse,
    SystemMessage,
    UserMessage,
)
from advisorchain.advisors import CacheAdvisor, MessageChatMemoryAdvisor
from advisorchain.client import CallOptions, ChatClient, TypedResponse
from advisorchain.errors import (
    CallTimeoutError,
    ConfigurationError,
    ConversationIdError,
    InvalidInputError,
    OutputValidationError,
    StreamError,
)
from advisorchain.hooks import before
from advisorchain.memory import ChatMemory
from advisorchain.options import ToolDefinition
from advisorchain.output import OutputType
from advisorchain.prompt_template import PromptTemplate
from advisorchain.sync_client import SyncChatClient
from advisorchain.testing import Pause, RecordingAdvisor, ScriptedModel

from ._client_laws import LAWS, MAKE, check_door


class Person(BaseModel):
    name: str
    age: int


ADA = '{"name": "Ada", "age": 36}'


def texts(model: ScriptedModel, place: int = -1) -> list[str]:
    return [message.text for message in model.requests[place].messages]


@pytest.mark.parametrize("make", MAKE)
@pytest.mark.parametrize("law", LAWS)
async def test_the_client_keeps_the_laws(law: str, make: str) -> None:
    await check_door(law, lambda model, advisors: ChatClient(model, advisors=advisors, telemetry=None), MAKE[make])


# -- prompts


@pytest.mark.parametrize(
    "prompt",
    [
        "hi",
        UserMessage("hi"),
        [UserMessage("hi")],
        {"role": "user", "content": "hi"},
        [{"role": "user", "content": "hi"}],
    ],
    ids=["text", "message", "messages", "dict", "dicts"],
)
async def test_a_prompt_in_each_form(prompt: Any) -> None:
    client = ChatClient(model := ScriptedModel("yes", repeat=True), system="be brief")
    assert (await client.call(prompt)).text == "yes"
    async with client.stream(prompt) as stream:
        assert "".join([chunk.text async for chunk in stream]) == "yes"
    for request in model.requests:
        assert request.messages == (SystemMessage("be brief"), UserMessage("hi"))


@pytest.mark.parametrize("prompt", [None, "", " ", 5, [], [5], [UserMessage("x"), {"role": "user", "content": "y"}]])
async def test_what_is_no_prompt_is_refused_before_the_model_is_asked(prompt: Any) -> None:
    client = ChatClient(model := ScriptedModel("yes"), system="be brief")
    with pytest.raises(InvalidInputError):
        await client.call(prompt)
    with pytest.raises(InvalidInputError):
        client.stream(prompt)
    assert not model.requests


# -- system text


async def test_braces_in_a_plain_system_text_are_text() -> None:
    text = 'Reply as {"name": {schema}} or {{x}} %s ${y}'
    client = ChatClient(model := ScriptedModel("yes", repeat=True), system=text)
    await client.call("hi {schema}")
    assert texts(model) == [text, "hi {schema}"]
    with pytest.raises(InvalidInputError, match="`values` are for a `system` that is a PromptTemplate"):
        await client.call("hi", values={"schema": "x"})


async def test_a_templates_values_are_those_of_the_client_and_of_the_call() -> None:
    template = PromptTemplate("Talk to {name} in {language}.")
    client = ChatClient(model := ScriptedModel("yes", repeat=True), system=template, values={"language": "English"})
    await client.call("hi", values={"name": "{language}"})
    assert texts(model)[0] == "Talk to {language} in English."
    await client.call("hi", values={"name": "Ada", "language": "Welsh"})
    assert texts(model)[0] == "Talk to Ada in Welsh."
    with pytest.raises(InvalidInputError, match="no value for `name`"):
        await client.call("hi")
    with pytest.raises(InvalidInputError, match="no slot `age`"):
        await client.call("hi", values={"name": "Ada", "age": 5})
    with pytest.raises(InvalidInputError, match="`values` is a list"):
        await client.call("hi", values=["x"])
    with pytest.raises(InvalidInputError, match="blank"):
        await ChatClient(model, system=PromptTemplate("{x}")).call("hi", values={"x": " "})
    assert len(model.requests) == 2


async def test_B050_history_in_the_system_text_is_not_a_template_again() -> None:
    stored = ['{"a": {"b": 1}}', "{user.name}", "{0}", "${HOME} %s {{x}}", "{history}"]
    memory = ChatMemory()
    await memory.add("c", [UserMessage(text) for text in stored])
    client = ChatClient(model := ScriptedModel("yes", repeat=True), system=PromptTemplate("So far:\n{history}\nBe brief."))
    for _ in range(2):
        history = "\n".join(message.text for message in await memory.get("c"))
        await client.call("hi", values={"history": history})
        assert texts(model) == ["So far:\n" + "\n".join(stored) + "\nBe brief.", "hi"]


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"system": " "}, "`system` is blank"),
        ({"system": 5}, "`system` is an int"),
        ({"system": "{x}", "values": {"x": "1"}}, "no slot `x`; only a PromptTemplate"),
        ({"system": PromptTemplate("{x}"), "values": {"y": "1"}}, "no slot `y`"),
        ({"memory": 5}, "`memory` is an int"),
        ({"memory": ChatMemory}, "`memory` is the class"),
        ({"memory": ChatMemory(), "advisors": "x"}, "`advisors` is a str"),
        ({"advisors": None}, "`advisors` is None"),
        ({"memory": ChatMemory(), "advisors": [MessageChatMemoryAdvisor(ChatMemory())]}, "two advisors are named"),
    ],
)
def test_settings_that_cannot_work_are_refused(settings: Any, said: str) -> None:
    with pytest.raises(ConfigurationError, match=said):
        ChatClient(ScriptedModel(), **settings)


# -- what a call changes


async def test_options_are_merged_field_by_field() -> None:
    tools = (ToolDefinition("search"),)
    own = ChatOptions(model="small", temperature=0.2, tools=tools, stop=("END",))
    client = ChatClient(model := ScriptedModel("yes", repeat=True), options=own)
    await client.call("hi")
    assert model.requests[-1].options == own
    await client.call("hi", options=ChatOptions(temperature=0.0, seed=7))
    assert model.requests[-1].options == ChatOptions(model="small", temperature=0.0, tools=tools, stop=("END",), seed=7)
    with pytest.raises(InvalidInputError, match="`options` is a dict"):
        await client.call("hi", options={"temperature": 1})
    await ChatClient(model).call("hi", options=ChatOptions(seed=1))
    assert model.requests[-1].options == ChatOptions(seed=1)


async def test_contexts_are_merged_and_come_back() -> None:
    client = ChatClient(ScriptedModel("yes", repeat=True), context={"a": 1, "b": 1})
    assert (await client.call("hi", context={"b": 2})).context == {"a": 1, "b": 2}
    assert (await client.call("hi")).context == {"a": 1, "b": 1}
    with pytest.raises(InvalidInputError, match="`context` is a list"):
        await client.call("hi", context=[1])


async def test_advisors_of_one_call_and_without() -> None:
    log: list[Any] = []
    own, further = RecordingAdvisor("own", log=log), RecordingAdvisor("further", log=log)
    client = ChatClient(ScriptedModel("yes", repeat=True), advisors=[own])
    await client.call("hi", advisors=[further], without=["own"])
    assert {seen.advisor for seen in log} == {"further"}
    assert [row.name for row in client.chain.describe()] == ["own"]
    assert repr(client) == "<ChatClient own@0 > scripted>"


@pytest.mark.parametrize("name", ["advisors", "without"])
@pytest.mark.parametrize("turn", ["new", "edit"])
async def test_one_thing_where_several_are_to_be_given(name: str, turn: str) -> None:
    client = ChatClient(ScriptedModel(), memory=ChatMemory())
    for wrong in (5, "memory"):
        with pytest.raises(InvalidInputError, match=f"`{name}` is .*; give a list"):
            await client.call("hi", conversation_id="c", turn=turn, **{name: wrong})


async def test_a_calls_timeout() -> None:
    client = ChatClient(model := ScriptedModel([Pause()], repeat=True))
    with pytest.raises(CallTimeoutError):
        await client.call("hi", timeout=0.01)
    assert model.open_streams == 0


async def test_a_misspelt_argument_is_named() -> None:
    with pytest.raises(TypeError, match="temprature"):
        await ChatClient(ScriptedModel("x")).call("hi", temprature=1)


# -- memory


@pytest.mark.parametrize("make", [lambda memory: memory, MessageChatMemoryAdvisor], ids=["memory", "advisor"])
async def test_a_client_with_memory_remembers(make: Any) -> None:
    memory = ChatMemory()
    client = ChatClient(model := ScriptedModel("Hello Ada", "You are Ada"), system="sys", memory=make(memory))
    assert client.memory is memory
    await client.call("I am Ada", conversation_id="c")
    async with client.stream("Who am I?", conversation_id="c") as stream:
        assert [chunk.text async for chunk in stream]
    assert texts(model) == ["sys", "I am Ada", "Hello Ada", "Who am I?"]
    assert [message.text for message in await memory.get("c")] == ["I am Ada", "Hello Ada", "Who am I?", "You are Ada"]


async def test_a_clients_memory_is_read_and_cleared() -> None:
    client = ChatClient(ScriptedModel("a1", "a2"), memory=ChatMemory())
    for question in ("q1", "q2"):
        await client.call(question, conversation_id="c")
    page = await client.history("c", limit=3)
    assert [entry.message.text for entry in page.items] == ["q1", "a1", "q2"]
    assert [entry.message.text for entry in (await client.history("c", after=page.next)).items] == ["a2"]
    assert (await client.history("c", newest_first=True)).items[0].message.text == "a2"
    assert [await client.clear("c"), await client.clear("c")] == [True, False]
    for ask in (ChatClient(ScriptedModel()).history, ChatClient(ScriptedModel()).clear):
        with pytest.raises(ConfigurationError, match="no `memory`"):
            await ask("c")


async def test_with_memory_an_id_is_needed_and_without_it_is_not() -> None:
    with pytest.raises(ConversationIdError):
        await ChatClient(model := ScriptedModel("x"), memory=ChatMemory()).call("hi")
    assert not model.requests
    client = ChatClient(ScriptedModel("x"))
    assert (await client.call("hi")).text == "x"
    assert client.memory is None


async def test_entering_opens_the_parts_and_leaves_the_memory_to_its_giver() -> None:
    class Opened(ScriptedModel):
        state = "new"

        async def __aenter__(self) -> Opened:
            self.state = "open"
            return self

        async def __aexit__(self, *_: object) -> None:
            self.state = "closed"

    memory = ChatMemory()
    async with ChatClient(model := Opened("x"), memory=memory) as client:
        assert model.state == "open"
        await client.call("hi", conversation_id="c")
    assert model.state == "closed"
    assert await memory.count("c") == 2


# -- streams


async def test_a_stream_is_entered_once_and_read_inside() -> None:
    stream = ChatClient(ScriptedModel("a b")).stream("hi")
    assert repr(stream) == "<ClientStream, not entered>"
    assert stream.partial is None
    await stream.aclose()
    with pytest.raises(StreamError, match=r"inside `async with client\.stream"):
        aiter(stream)
    stream = ChatClient(ScriptedModel("a b")).stream("hi")
    async with stream:
        assert (await anext(aiter(stream))).text == "a"
        assert stream.partial is not None
        assert stream.partial.message == AssistantMessage("a", partial=True)
        with pytest.raises(StreamError, match="not been read to its end"):
            _ = stream.response
        with pytest.raises(StreamError, match="entered already"):
            await stream.__aenter__()
        await stream.aclose()
    assert repr(stream) == "<ClientStream, entered>"


# -- typed answers


@dataclass
class Point:
    x: int
    y: int


class Film(TypedDict):
    title: str


@pytest.mark.parametrize(
    ("kind", "answer", "value"),
    [
        (Person, ADA, Person(name="Ada", age=36)),
        (Point, '{"x": 1, "y": 2}', Point(1, 2)),
        (Film, '{"title": "M"}', {"title": "M"}),
        (list[int], '{"value": [1, 2]}', [1, 2]),
        (int | None, '{"value": null}', None),
        (OutputType(Person), ADA, Person(name="Ada", age=36)),
        (Annotated[int, ["no key"]], '{"value": 7}', 7),
    ],
    ids=["model", "dataclass", "typeddict", "list", "union", "output type", "unhashable"],
)
async def test_an_answer_of_each_kind_of_type(kind: Any, answer: str, value: Any) -> None:
    client = ChatClient(model := ScriptedModel(answer, repeat=True), memory=ChatMemory())
    response = await client.call("who?", conversation_id="c", output_type=kind)
    assert response.output == value
    assert isinstance(response, TypedResponse)
    assert response.text == answer
    async with client.stream("who?", conversation_id="d", output_type=kind) as stream:
        assert "".join([chunk.text async for chunk in stream]) == answer
    assert stream.output == value
    assert len(model.requests) == 2


async def test_a_typed_response_is_a_response() -> None:
    response = await ChatClient(ScriptedModel(ADA)).call("who?", output_type=Person, context={"a": 1})
    again = pickle.loads(pickle.dumps(response))
    assert (again.output, again.message, again.context) == (response.output, response.message, {"a": 1})
    assert response == again
    assert response.with_context(b=2).context == {"a": 1, "b": 2}
    assert isinstance(response, ChatResponse)


async def test_a_copy_of_a_typed_response_has_the_value_of_its_own_message() -> None:
    response = await ChatClient(ScriptedModel(ADA)).call("who?", output_type=Person)
    for copied in (response.with_context(b=2), response.replace(finish_reason="length"), copy.deepcopy(response)):
        assert copied.output == response.output
        assert isinstance(copied, TypedResponse)
    assert response.replace(id="x").output is response.output is response.output
    assert response.replace(message='{"name": "Eve", "age": 1}').output == Person(name="Eve", age=1)
    with pytest.raises(OutputValidationError):
        _ = response.replace(message="no").output


async def test_a_typed_call_and_a_typed_stream_give_the_same_response() -> None:
    client = ChatClient(ScriptedModel(ADA, repeat=True))
    async with client.stream("who?", output_type=Person) as stream:
        async for _ in stream:
            assert isinstance(stream.partial, TypedResponse)
    assert stream.response == stream.partial == await client.call("who?", output_type=Person)
    assert stream.response is stream.response
    assert stream.response.output is stream.output


async def test_a_stream_without_a_type_says_what_it_has_no_value_for() -> None:
    async with ChatClient(ScriptedModel("a b")).stream("hi") as stream:
        for look in (lambda: stream.output, lambda: stream.partials(), lambda: stream.partial_output):
            with pytest.raises(StreamError, match=r"`client\.stream\(…, output_type=…\)`"):
                look()
        assert "".join([chunk.text async for chunk in stream]) == "a b"


def test_help_tells_the_arguments() -> None:
    own = inspect.signature(ChatClient.call).parameters
    assert own.keys() == CallOptions.__annotations__.keys() | {"self", "prompt", "output_type"}
    assert inspect.signature(ChatClient.stream).parameters == own
    assert inspect.signature(SyncChatClient.call).parameters == inspect.signature(SyncChatClient.stream).parameters == own
    assert inspect.signature(ChatClient.call).return_annotation == "ChatResponse"
    assert list(inspect.signature(ChatClient(ScriptedModel()).call).parameters)[:2] == ["prompt", "conversation_id"]
    made = dict(inspect.signature(SyncChatClient).parameters)
    assert made.pop("backend")
    assert list(made) == list(inspect.signature(ChatClient).parameters)


async def test_the_chain_of_a_type_is_built_once() -> None:
    client = ChatClient(ScriptedModel(ADA, repeat=True))
    for _ in range(3):
        await client.call("who?", output_type=Person)
    assert client._typed_chain.cache_info().misses == 1
    assert [row.name for row in client.chain.describe()] == []


async def test_a_wrong_answer_is_asked_for_again_and_not_remembered() -> None:
    client = ChatClient(model := ScriptedModel('{"name": "Ada"}', ADA), memory=ChatMemory())
    response = await client.call("who?", conversation_id="c", output_type=Person)
    assert response.output.age == 36
    assert client.memory is not None
    assert [message.text for message in await client.memory.get("c")] == ["who?", ADA]
    assert len(model.requests) == 2


async def test_partials_grow_and_begin_anew_when_an_attempt_is_withdrawn() -> None:
    bad = ['{"name": "Ad', 'a", "age": "o', 'ld"}', ChatChunk(finish_reason="stop")]
    good = ['{"name": "Eve', '", "age": 3', "6}", ChatChunk(finish_reason="stop")]
    client = ChatClient(ScriptedModel(bad, good))
    async with client.stream("who?", output_type=Person) as stream:
        assert stream.partial_output is None
        partials = [partial async for partial in stream.partials()]
    names = [partial.get("name") for partial in partials]
    assert names[:3] == ["Ad", "Ada", "Ada"]
    assert "Eve" in names[3:]
    assert "Ada" not in names[names.index("Eve") :]
    assert partials[-1] == {"name": "Eve", "age": 36}
    assert stream.output == Person(name="Eve", age=36)


async def test_chunks_and_partials_can_both_be_had() -> None:
    client = ChatClient(ScriptedModel(['{"name": "A', 'da", "age": 36', "}", ChatChunk(finish_reason="stop")]))
    seen = []
    async with client.stream("who?", output_type=Person) as stream:
        async for chunk in stream:
            seen.append((chunk.text, stream.partial_output))
    assert seen[0] == ('{"name": "A', {"name": "A"})
    assert seen[-1][1] == {"name": "Ada", "age": 36}
    assert "".join(text for text, _ in seen) == stream.response.text


async def test_a_typed_stream_may_be_left_early() -> None:
    client = ChatClient(model := ScriptedModel(['{"name": "A', 'da", "age": 36}'], repeat=True))
    async with client.stream("who?", output_type=Person) as stream:
        async for partial in stream.partials():
            assert partial == {"name": "A"}
            break
    assert model.open_streams == 0
    with pytest.raises(StreamError, match="not been read to its end"):
        _ = stream.output


@pytest.mark.parametrize(
    "refusal",
    [
        ChatResponse(AssistantMessage("", refusal="I will not."), finish_reason="stop"),
        ChatResponse("I cannot say.", finish_reason="content_filter"),
    ],
    ids=["refusal", "content_filter"],
)
async def test_a_refusal_is_told(refusal: ChatResponse) -> None:
    client = ChatClient(model := ScriptedModel(refusal, repeat=True))
    with pytest.raises(OutputValidationError, match="refused") as raised:
        await client.call("who?", output_type=Person)
    assert raised.value.response.message == refusal.message
    async with client.stream("who?", output_type=Person) as stream:
        assert [chunk async for chunk in stream]
    with pytest.raises(OutputValidationError, match="refused"):
        _ = stream.output
    assert len(model.requests) == 2


async def test_the_text_that_is_parsed_is_the_one_that_leaves_the_chain() -> None:
    class Renamed(RecordingAdvisor):
        def transform(self, request: ChatRequest) -> Any:
            return partial(_Replacing)()

    client = ChatClient(ScriptedModel(ADA), advisors=[Renamed("renamed")])
    assert (await client.call("who?", output_type=Person)).output.name == "Eve"


class _Replacing:
    def __init__(self) -> None:
        self.held = ""

    def feed(self, text: str) -> str:
        self.held += text
        return ""

    def flush(self) -> str:
        return self.held.replace("Ada", "Eve")


async def test_a_hook_sees_the_form_that_is_asked_for() -> None:
    @before(order=9000)
    def look(request: ChatRequest) -> ChatRequest:
        assert request.options.output == OutputType(Person).schema
        return request

    client = ChatClient(ScriptedModel(ADA, repeat=True), advisors=[look], options=ChatOptions(temperature=0.0))
    assert (await client.call("who?", output_type=Person)).output == Person(name="Ada", age=36)


# -- where it is


def test_importing_the_package_does_not_load_the_client() -> None:
    code = """
import sys
before = set(sys.modules)
import advisorchain
loaded = {"advisorchain.client", "advisorchain.memory", "advisorchain.advisors", "sqlite3"} & (set(sys.modules) - before)
assert not loaded, loaded
from advisorchain import ChatClient, PromptTemplate, SyncChatClient, TypedResponse, after, before
assert ChatClient.__module__ == "advisorchain.client"
assert {"ChatClient", "AdvisorChain"} <= set(dir(advisorchain))
try:
    advisorchain.ChatClients
except AttributeError as error:
    assert str(error) == "module `advisorchain` has no `ChatClients`"
else:
    raise AssertionError
"""
    ran = subprocess.run([sys.executable, "-W", "error", "-c", code], capture_output=True, text=True)
    assert (ran.returncode, ran.stderr) == (0, "")


async def test_a_cache_keeps_the_answers_of_different_types_apart() -> None:
    model = ScriptedModel('{"value": 7}', '{"value": "seven"}', "plain")
    client = ChatClient(model, advisors=[CacheAdvisor(shared=True)])
    assert (await client.call("how many?", output_type=int)).output == 7
    assert (await client.call("how many?", output_type=str)).output == "seven"
    assert (await client.call("how many?")).text == "plain"
    assert (await client.call("how many?", output_type=int)).output == 7
    assert len(model.requests) == 3
