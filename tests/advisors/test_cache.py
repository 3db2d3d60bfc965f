"""Answers are given again to the same request, in the same conversation, and to no other."""

from __future__ import annotations

import logging
import sqlite3
import sys
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import anyio
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from advisorchain import AdvisorChain, AssistantMessage, BaseAdvisor, ChatChunk, ChatRequest, ChatResponse
from advisorchain.advisors import _cache_stores
from advisorchain.advisors.cache import CacheAdvisor, CacheStore, InMemoryCache, SqliteCache
from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor
from advisorchain.errors import AdvisorOrderWarning, ConfigurationError, ModelError
from advisorchain.exchange import ToolCallChunk
from advisorchain.memory import ChatMemory
from advisorchain.messages import ImagePart, SystemMessage, TextPart, ToolCall, ToolMessage, Usage, UserMessage
from advisorchain.options import ChatOptions, OutputSchema, ToolDefinition
from advisorchain.testing import ScriptedModel, check_advisor

MODES = pytest.mark.parametrize("mode", ["call", "stream"])


async def ask(
    chain: AdvisorChain, mode: str, prompt: Any = "q", conversation_id: str | None = "c", **more: Any
) -> ChatResponse:
    if mode == "call":
        return await chain.call(prompt, conversation_id, **more)
    async with chain.stream(prompt, conversation_id, **more) as stream:
        shown = [chunk.text async for chunk in stream]
        assert "".join(shown) == stream.response.text
        return stream.response


def cached(model: Any, *more: Any, **settings: Any) -> AdvisorChain:
    return AdvisorChain(model, [CacheAdvisor(**settings), *more])


@pytest.fixture(params=["in memory", "sqlite"])
async def store(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[CacheStore]:
    if request.param == "in memory":
        yield InMemoryCache()
    else:
        async with SqliteCache(tmp_path / "cache.db") as sqlite:
            yield sqlite


@pytest.fixture
def now(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The time, in a list, for a test to change."""
    told = [1000.0]
    monkeypatch.setattr(_cache_stores, "time", lambda: told[0])
    return told


# ---- the laws


@pytest.mark.parametrize("shared", [False, True])
async def test_it_keeps_the_laws(shared: bool) -> None:
    await check_advisor(lambda: CacheAdvisor(shared=shared))


async def test_it_keeps_the_laws_in_a_file(tmp_path: Path) -> None:
    places = iter(range(10_000))
    await check_advisor(lambda: CacheAdvisor(SqliteCache(tmp_path / f"{next(places)}.db")))


async def test_it_keeps_the_laws_when_all_is_in_the_store() -> None:
    store = InMemoryCache()
    await AdvisorChain(ScriptedModel("One, two, three, four."), [CacheAdvisor(store)]).call("Count to four.", "law")
    await check_advisor(lambda: CacheAdvisor(store))


# ---- what is the same


@MODES
async def test_the_same_request_is_answered_once(mode: str, store: CacheStore) -> None:
    told = ChatResponse("fine", finish_reason="stop", usage=Usage(5, 1), model="m-1", id="r-1", metadata={"limit": 3})
    model = ScriptedModel(told)
    chain = cached(model, store=store)
    first = await ask(chain, mode, context={"k": 1})
    assert (first.usage, dict(first.metadata)) == (Usage(5, 1), {"limit": 3})
    again = await ask(chain, mode, context={"k": 2})
    assert (again.message, again.finish_reason, again.model, again.id) == (AssistantMessage("fine"), "stop", "m-1", "r-1")
    assert (again.usage, dict(again.metadata), dict(again.context)) == (Usage(0, 0), {"cached": True}, {"k": 2})
    assert len(model.requests) == 1


async def test_an_answer_of_a_call_is_given_to_a_stream_as_one_chunk(store: CacheStore) -> None:
    chain = cached(ScriptedModel("one two three"), store=store)
    await ask(chain, "call")
    async with chain.stream("q", "c") as stream:
        assert [chunk.text async for chunk in stream if chunk.text] == ["one two three"]
        assert stream.response.metadata["cached"] is True


async def test_what_a_message_has_beside_its_text_comes_back(store: CacheStore) -> None:
    class Loop(BaseAdvisor):
        def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
            round_ = (
                AssistantMessage(tool_calls=(ToolCall("k", "look"),)),
                ToolMessage("x", tool_call_id="k", structured=[1]),
            )
            return response.replace(earlier=round_)

    message = AssistantMessage(
        (TextPart("see"), ImagePart(data=b"\x00\xff", media_type="image/png")), reasoning="hm", metadata={"signature": "s"}
    )
    model = ScriptedModel(ChatResponse(message, finish_reason="stop"))
    chain = cached(model, Loop(), store=store)
    first, again = await ask(chain, "call"), await ask(chain, "call")
    assert again.turn == first.turn
    assert again.message == message


@MODES
async def test_chain_064_system_prompts_are_kept_apart(mode: str, store: CacheStore) -> None:
    model = ScriptedModel("Arr.", "Well.")
    chain = cached(model, store=store, shared=True)
    answers = [
        (await ask(chain, mode, "q", None, system=system)).text for system in ("pirate", "teacher", "pirate", "teacher")
    ]
    assert answers == ["Arr.", "Well.", "Arr.", "Well."]


BASE = ChatRequest((SystemMessage("s"), UserMessage("q")), "c", ChatOptions(temperature=0.5))


@pytest.mark.parametrize(
    "other",
    [
        BASE.replace(conversation_id="d"),
        BASE.replace(conversation_id=None),
        BASE.replace(messages=(SystemMessage("s"), UserMessage("q "))),
        BASE.replace(messages=(SystemMessage("q"), UserMessage("s"))),
        BASE.replace(messages=(SystemMessage("sq"),)),
        BASE.replace(messages=(SystemMessage("s"), UserMessage("q", name="ada"))),
        BASE.replace(messages=(SystemMessage("s"), UserMessage((TextPart("q"),)))),
        BASE.replace(messages=(*BASE.messages, AssistantMessage("a"), UserMessage("q"))),
        BASE.replace(messages=(*BASE.messages, AssistantMessage("a", metadata={"signature": 1}), UserMessage("q"))),
        BASE.replace(options=ChatOptions(temperature=0.6)),
        BASE.replace(options=ChatOptions(temperature=0.5, model="m")),
        BASE.replace(options=ChatOptions(temperature=0.5, tools=[ToolDefinition("look")])),
        BASE.replace(options=ChatOptions(temperature=0.5, output=OutputSchema({"type": "object"}))),
        BASE.replace(options=ChatOptions(temperature=0.5, extra={"a": 1})),
    ],
    ids=range(14),
)
def test_whatever_the_model_would_see_makes_another_key(other: ChatRequest) -> None:
    assert CacheAdvisor().key(other) != CacheAdvisor().key(BASE)


@pytest.mark.parametrize(
    "same",
    [
        BASE.replace(),
        BASE.replace(context={"k": 1}, local={"l": 1}, round=2),
        BASE.replace(messages=(SystemMessage("s"), UserMessage("q", metadata={"sent": "today"}))),
        BASE.replace(options=replace(BASE.options, stop=())),
    ],
    ids=range(4),
)
def test_what_the_model_would_not_see_makes_none(same: ChatRequest) -> None:
    assert CacheAdvisor().key(same) == CacheAdvisor().key(BASE)
    assert len(CacheAdvisor().key(same)) == 64


def test_a_scope_sets_apart() -> None:
    assert CacheAdvisor(scope="a").key(BASE) != CacheAdvisor(scope="b").key(BASE)


@settings(max_examples=50, deadline=None)
@given(*[st.lists(st.text('ab"', min_size=1, max_size=3), min_size=1, max_size=3)] * 2)
def test_other_texts_are_another_key(one: list[str], other: list[str]) -> None:
    first, second = (BASE.replace(messages=tuple(map(UserMessage, texts))) for texts in (one, other))
    assert (CacheAdvisor().key(first) == CacheAdvisor().key(second)) == (one == other)


# ---- whose answers


@MODES
async def test_a_conversation_gets_no_answer_of_another(mode: str, store: CacheStore) -> None:
    model = ScriptedModel("for c", "for d")
    chain = cached(model, store=store)
    texts = [(await ask(chain, mode, conversation_id=each)).text for each in ("c", "d", "c", "d")]
    assert texts == ["for c", "for d", "for c", "for d"]


@MODES
async def test_without_a_conversation_nobody_knows_whose_it_is(mode: str, store: CacheStore) -> None:
    model = ScriptedModel("for one", "for another")
    chain = cached(model, store=store)
    assert [(await ask(chain, mode, conversation_id=None)).text for _ in range(2)] == ["for one", "for another"]


@MODES
async def test_all_get_it_when_it_is_shared(mode: str, store: CacheStore) -> None:
    chain = cached(ScriptedModel("for all"), store=store, shared=True)
    assert {(await ask(chain, mode, conversation_id=each)).text for each in ("c", None, "d")} == {"for all"}


# ---- what is kept


@MODES
@pytest.mark.parametrize(
    "reply",
    [
        ChatResponse("No.", finish_reason="content_filter"),
        ChatResponse("Wait.", finish_reason="paused"),
        ChatResponse("Once upon", finish_reason="length"),
        ChatResponse(AssistantMessage(refusal="I will not."), finish_reason="stop"),
        ChatResponse(" ", finish_reason="stop"),
        [ChatChunk(tool_calls=(ToolCallChunk(0, "k", "look", "{}"),), finish_reason="tool_calls")],
    ],
    ids=["filtered", "paused", "cut off", "refusal", "blank", "tools"],
)
async def test_what_is_no_whole_answer_is_not_kept(mode: str, reply: Any, store: CacheStore) -> None:
    model = ScriptedModel(reply, "answer")
    chain = cached(model, store=store)
    await ask(chain, mode)
    assert (await ask(chain, mode)).text == "answer"


@MODES
async def test_an_error_is_not_kept(mode: str, store: CacheStore) -> None:
    chain = cached(ScriptedModel(ModelError("down"), "answer"), store=store)
    with pytest.raises(ModelError):
        await ask(chain, mode)
    assert (await ask(chain, mode)).text == "answer"


async def test_half_an_answer_is_not_kept(store: CacheStore) -> None:
    chain = cached(ScriptedModel("one two three", "answer"), store=store)
    async with chain.stream("q", "c") as stream:
        await anext(aiter(stream))
    assert (await ask(chain, "call")).text == "answer"


@MODES
async def test_memory_remembers_what_the_cache_has_answered(mode: str, store: CacheStore) -> None:
    memory = ChatMemory()
    chain = cached(ScriptedModel("fine"), MessageChatMemoryAdvisor(memory), store=store, shared=True)
    for conversation_id in ("c", "d"):
        await ask(chain, mode, conversation_id=conversation_id)
        assert [message.text for message in await memory.get(conversation_id)] == ["q", "fine"]


@MODES
async def test_another_history_is_another_request(mode: str, store: CacheStore) -> None:
    chain = cached(ScriptedModel("first", "second"), MessageChatMemoryAdvisor(ChatMemory()), store=store)
    assert [(await ask(chain, mode)).text for _ in range(2)] == ["first", "second"]


# ---- the stores


async def test_an_answer_has_its_time(store: CacheStore, now: list[float]) -> None:
    await store.put("k", "v", 10)
    await store.put("l", "w", None)
    now[0] += 9.9
    assert await store.get("k") == "v"
    now[0] += 0.1
    assert await store.get("k") is None
    now[0] += 1e9
    assert await store.get("l") == "w"


@MODES
async def test_the_advisor_gives_the_time(mode: str, store: CacheStore, now: list[float]) -> None:
    chain = cached(ScriptedModel("first", "second"), store=store, ttl=10)
    texts = []
    for _ in range(3):
        texts.append((await ask(chain, mode)).text)
        now[0] += 6
    assert texts == ["first", "first", "second"]


async def test_a_later_value_takes_the_place_of_an_earlier_one(store: CacheStore) -> None:
    await store.put("k", "v", None)
    await store.put("k", "w\0é\u2028", None)
    assert await store.get("k") == "w\0é\u2028"
    assert await store.get("other") is None


async def test_in_memory_what_was_not_used_for_longest_goes() -> None:
    store = InMemoryCache(max_entries=2)
    for key in "ab":
        await store.put(key, key, None)
    assert await store.get("a") == "a"
    await store.put("c", "c", None)
    assert [await store.get(key) for key in "abc"] == ["a", None, "c"]


async def test_in_a_file_what_was_put_longest_ago_goes(tmp_path: Path, now: list[float]) -> None:
    async with SqliteCache(tmp_path / "cache.db", max_entries=2) as store:
        for key in "abc":
            await store.put(key, key, None)
        assert [await store.get(key) for key in "abc"] == [None, "b", "c"]
        await store.put("d", "d", 1)
        now[0] += 2
        await store.put("e", "e", None)
    rows = sqlite3.connect(tmp_path / "cache.db").execute("SELECT key FROM answers ORDER BY key").fetchall()
    assert rows == [("e",)]  # at most two places, and the time of one was over


async def test_a_file_outlives_its_process_and_serves_several(tmp_path: Path) -> None:
    path = tmp_path / "cache.db"
    code = f"""
import anyio
from advisorchain.advisors.cache import SqliteCache

async def main():
    async with SqliteCache({str(path)!r}) as store:
        for number in range(50):
            await store.put(f"{{number}}", "there", None)

anyio.run(main)
"""
    async with SqliteCache(path) as store, anyio.create_task_group() as group:
        for _ in range(2):
            group.start_soon(anyio.run_process, [sys.executable, "-c", code])
        for number in range(50):
            await store.put(f"here {number}", "here", None)
    async with SqliteCache(path) as store:
        assert [await store.get(str(number)) for number in range(50)] == ["there"] * 50
        assert await store.get("here 49") == "here"


async def test_many_at_once(store: CacheStore) -> None:
    async def one(number: int) -> None:
        await store.put(str(number), str(number), None)
        assert await store.get(str(number)) == str(number)

    async with anyio.create_task_group() as group:
        for number in range(50):
            group.start_soon(one, number)


class Broken:
    async def get(self, key: str) -> str | None:
        raise OSError("secret place")

    async def put(self, key: str, value: str, seconds: float | None) -> None:
        raise OSError("secret place")


@MODES
async def test_a_store_that_fails_costs_no_answer(mode: str, caplog: pytest.LogCaptureFixture) -> None:
    assert (await ask(cached(ScriptedModel("answer"), store=Broken()), mode)).text == "answer"
    told = [record for record in caplog.records if record.getMessage() == "advisorchain.cache.failed"]
    assert [(record.levelno, record.__dict__["error_type"]) for record in told] == [(logging.WARNING, "OSError")] * 2
    assert "secret" not in str([record.__dict__ for record in told])


async def test_the_file_of_another_is_left_alone(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    path = tmp_path / "other.db"
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE theirs (x)")
    other.close()
    async with SqliteCache(path) as store:
        assert (await ask(cached(ScriptedModel("answer"), store=store), "call")).text == "answer"
    assert [record.__dict__["error_type"] for record in caplog.records] == ["StorageError"] * 2
    assert sqlite3.connect(path).execute("SELECT name FROM sqlite_master").fetchall() == [("theirs",)]


@pytest.mark.parametrize("value", ["", "no json", "[]", '{"turn": []}', '{"turn": [{"role": "user", "content": "q"}]}'])
async def test_what_is_no_answer_of_ours_is_as_good_as_none(value: str, store: CacheStore) -> None:
    advisor = CacheAdvisor(store)
    await store.put(advisor.key(ChatRequest((UserMessage("q"),), "c")), value, None)
    assert (await ask(AdvisorChain(ScriptedModel("answer"), [advisor]), "call")).text == "answer"


# ---- building it


@pytest.mark.parametrize(
    ("settings", "about"),
    [
        ({"store": "file.db"}, "`store` is a str"),
        ({"ttl": 0}, "`ttl` is 0"),
        ({"ttl": "1h"}, "`ttl`"),
        ({"shared": None}, "`shared` is None"),
        ({"scope": None}, "`scope` is None"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, Any], about: str) -> None:
    with pytest.raises(ConfigurationError, match=about):
        CacheAdvisor(**settings)


@pytest.mark.parametrize("kind", [InMemoryCache, lambda max_entries: SqliteCache(":memory:", max_entries=max_entries)])
def test_a_store_needs_room(kind: Any) -> None:
    with pytest.raises(ConfigurationError, match="`max_entries` is 0"):
        kind(max_entries=0)


def test_memory_inside_is_told_and_a_second_cache_is_fine() -> None:
    inner = CacheAdvisor(name="second", order=0)
    assert len(AdvisorChain(ScriptedModel("x"), [CacheAdvisor(), inner]).advisors) == 2
    with pytest.warns(AdvisorOrderWarning, match="`memory`, which is further in, is left out"):
        cached(ScriptedModel("x"), MessageChatMemoryAdvisor(ChatMemory(), order=0))
