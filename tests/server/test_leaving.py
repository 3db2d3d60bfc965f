"""Clients that leave, many clients at once, and limits: nothing is left open, and what was seen is kept."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import AsyncGenerator, Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import anyio
import httpx2
import openai
import pytest
from anyio import to_thread
from starlette.applications import Starlette

from advisorchain import AdvisorChain, BaseAdvisor, ChatRequest, SystemMessage, UserMessage
from advisorchain.client import ChatClient
from advisorchain.messages import AssistantMessage
from advisorchain.server import _body, _reply, _turns, create_app, serve
from advisorchain.server import app as server_app
from advisorchain.testing import ScriptedModel

from ._serving import CLIENT_LETS_GO, HI, SECONDS, Served, remembering, served

pytestmark = pytest.mark.filterwarnings(CLIENT_LETS_GO)

NAMED = {"X-Conversation-Id": "c"}
PARTIAL = [UserMessage("Hi"), AssistantMessage("one two ", partial=True)]


class Endless:
    """Says two words and waits; counts what is under way."""

    name, provider = "endless", "tests"

    def __init__(self, *words: str) -> None:
        self.words = words
        self.opened = self.closed = 0
        self.silent = threading.Event()

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str, None]:
        self.opened += 1
        try:
            for word in self.words:
                yield word
            self.silent.set()
            await anyio.sleep_forever()
        finally:
            self.closed += 1


async def test_the_async_client_leaves_in_mid_stream() -> None:
    model = Endless("one ", "two ")
    chain, memory, ended = remembering(model)
    with served(chain) as server:
        async with server.client() as client:
            stream = await client.chat.completions.create(model="demo", messages=HI, stream=True, extra_headers=NAMED)
            seen = ""
            async for piece in stream:
                seen += piece.choices[0].delta.content or ""
                if seen == "one two ":
                    break
            await stream.close()
            assert await ended.next() in ("cancelled", "closed")
    assert list(await memory.get("c")) == PARTIAL
    assert (model.opened, model.closed) == (1, 1)


async def test_the_task_of_the_async_client_is_cancelled_in_mid_stream() -> None:
    model = Endless("one ", "two ")
    chain, memory, ended = remembering(model)
    with served(chain) as server:
        async with server.client() as client:
            with anyio.CancelScope() as scope:
                stream = await client.chat.completions.create(model="demo", messages=HI, stream=True, extra_headers=NAMED)
                async with stream:
                    async for piece in stream:
                        if piece.choices[0].delta.content == "two ":
                            scope.cancel()
        assert await ended.next() in ("cancelled", "closed")
    assert list(await memory.get("c")) == PARTIAL
    assert (model.opened, model.closed) == (1, 1)


async def test_the_sync_client_leaves_in_mid_stream() -> None:
    model = Endless("one ", "two ")
    chain, memory, ended = remembering(model)

    def leave(server: Served) -> None:
        with server.sync_client() as client:
            with client.chat.completions.create(model="demo", messages=HI, stream=True, extra_headers=NAMED) as stream:
                for piece in stream:
                    if piece.choices[0].delta.content == "two ":
                        break

    with served(chain) as server:
        await to_thread.run_sync(leave, server)
        assert await ended.next() in ("cancelled", "closed")
    assert list(await memory.get("c")) == PARTIAL
    assert (model.opened, model.closed) == (1, 1)


@pytest.mark.parametrize("words", [(), ("one ",)])
async def test_a_client_that_leaves_a_call_stops_the_model_and_nothing_is_kept(words: tuple[str, ...]) -> None:
    model = Endless(*words)
    chain, memory, ended = remembering(model)
    with served(chain) as server:
        async with server.client() as client:
            async with anyio.create_task_group() as group:
                create: Callable[..., Any] = client.chat.completions.create
                group.start_soon(lambda: create(model="demo", messages=HI, extra_headers=NAMED))
                assert await to_thread.run_sync(model.silent.wait, SECONDS)
                group.cancel_scope.cancel()
        assert await ended.next() == "cancelled"
    assert await memory.count("c") == 0
    assert (model.opened, model.closed) == (1, 1)


async def test_a_client_that_leaves_before_the_first_word_leaves_nothing_behind() -> None:
    model = Endless()
    chain, memory, ended = remembering(model)
    with served(chain) as server:
        async with server.client() as client, anyio.create_task_group() as group:
            create: Callable[..., Any] = client.chat.completions.create
            group.start_soon(lambda: create(model="demo", messages=HI, stream=True, extra_headers=NAMED))
            assert await to_thread.run_sync(model.silent.wait, SECONDS)
            group.cancel_scope.cancel()
        assert await ended.next() == "cancelled"
    assert await memory.count("c") == 0
    assert (model.opened, model.closed) == (1, 1)


# many


class Crowd:
    """Lets nobody go on before `size` are there."""

    name, provider = "crowd", "tests"

    def __init__(self, size: int) -> None:
        self.size = size
        self.opened = self.closed = 0
        self.complete: anyio.Event | None = None

    async def stream(self, request: ChatRequest) -> AsyncGenerator[str, None]:
        self.opened += 1
        self.complete = self.complete or anyio.Event()  # here, where the server's loop runs
        if self.opened == self.size:
            self.complete.set()
        try:
            yield "for "
            await self.complete.wait()
            yield request.messages[-1].text
        finally:
            self.closed += 1


def tasks_of(server: Served) -> list[Any]:
    loop = server.server.servers[0].get_loop()

    async def others() -> list[Any]:
        return [task for task in asyncio.all_tasks() if task is not asyncio.current_task()]

    return asyncio.run_coroutine_threadsafe(others(), loop).result(SECONDS)


async def until(condition: Callable[[], bool]) -> None:
    with anyio.fail_after(SECONDS):
        while not condition():  # noqa: ASYNC110  what it asks about belongs to another thread
            await anyio.sleep(0.01)


@pytest.mark.slow
@pytest.mark.parametrize("anyio_backend", ["asyncio", pytest.param("trio", marks=pytest.mark.slow)])  # of the client
async def test_200_streams_at_once_leave_nothing_open() -> None:
    model = Crowd(200)
    chain, memory, ended = remembering(model)
    answers: dict[int, str] = {}
    with served(chain) as server:
        before = len(await to_thread.run_sync(tasks_of, server))

        async with server.client() as client:

            async def ask(number: int) -> None:
                stream = await client.chat.completions.create(
                    model="demo",
                    messages=[{"role": "user", "content": str(number)}],
                    stream=True,
                    extra_headers={"X-Conversation-Id": str(number)},
                )
                answers[number] = "".join([piece.choices[0].delta.content or "" async for piece in stream])

            async with anyio.create_task_group() as group:
                for number in range(200):
                    group.start_soon(ask, number)
        assert [await ended.next() for _ in range(200)] == ["ok"] * 200
        await until(lambda: not server.server.server_state.connections and not server.server.server_state.tasks)
        assert len(await to_thread.run_sync(tasks_of, server)) == before
    assert answers == {number: f"for {number}" for number in range(200)}
    assert (model.opened, model.closed) == (200, 200)
    assert [await memory.count(str(number)) for number in range(200)] == [2] * 200


@pytest.mark.parametrize("size", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_streams_of_the_sync_client_half_of_which_leave(size: int) -> None:
    model = Crowd(size)
    chain, _, ended = remembering(model)

    def ask(create: Callable[..., Any], number: int) -> str:
        with create(model="demo", messages=HI, stream=True, extra_headers={"X-Conversation-Id": str(number)}) as stream:
            text = ""
            for piece in stream:
                text += piece.choices[0].delta.content or ""
                if number % 2 and text:
                    break
        return text

    with served(chain) as server:
        before = len(tasks_of(server))
        with server.sync_client() as client, ThreadPoolExecutor(size) as pool:
            answers = list(pool.map(ask, [client.chat.completions.create] * size, range(size)))
        outcomes = [ended.wait() for _ in range(size)]
        anyio.run(until, lambda: not server.server.server_state.connections and not server.server.server_state.tasks)
        assert len(tasks_of(server)) == before
    assert answers[::2] == ["for Hi"] * (size // 2)
    assert outcomes.count("ok") >= size // 2
    assert (model.opened, model.closed) == (size, size)


async def test_more_streams_than_the_limit_are_told_to_wait() -> None:
    model = Endless("one ")
    with served(AdvisorChain(model), max_streams=1) as server:
        async with server.client() as client:
            create: Callable[..., Any] = client.chat.completions.create
            first = await create(model="demo", messages=HI, stream=True)
            assert (await anext(aiter(first))).choices[0].delta.role == "assistant"
            for stream in (True, False):
                with pytest.raises(openai.RateLimitError) as caught:
                    await create(model="demo", messages=HI, stream=stream)
                assert caught.value.response.headers["retry-after"] == "1"
                assert caught.value.response.json()["error"]["code"] == "too_many_streams"
            await first.close()
            await until(lambda: model.closed == 1)
            await until(lambda: not server.server.server_state.tasks)
            second = await create(model="demo", messages=HI, stream=True)
            await second.close()


async def test_a_silent_model_is_covered_by_comments_that_clients_pass_over(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reply, "_QUIET_SECONDS", 0.01)
    heard = threading.Event()

    async def slow(request: ChatRequest) -> AsyncGenerator[str, None]:
        await to_thread.run_sync(heard.wait, SECONDS)
        if request.messages[-1].text == "fail":
            raise RuntimeError
        yield "done"

    with served(AdvisorChain(slow)) as server:
        async with httpx2.AsyncClient(timeout=SECONDS) as raw:
            body = {"messages": HI, "stream": True}
            async with raw.stream("POST", f"{server.url}/chat/completions", json=body) as answer:
                lines = [line async for line in answer.aiter_lines() if (heard.set(), True)]
        assert lines[0] == ": still thinking"
        assert lines[-2:] == ["data: [DONE]", ""]
        heard.clear()
        async with server.client() as client, anyio.create_task_group() as group:
            group.start_soon(lambda: to_thread.run_sync(heard.wait, 0.1))
            stream = await client.chat.completions.create(model="demo", messages=HI, stream=True)
            heard.set()
            assert [piece.choices[0].delta.content async for piece in stream] == ["", "done", None]
            heard.clear()
            failing: list[Any] = [{"role": "user", "content": "fail"}]
            stream = await client.chat.completions.create(model="demo", messages=failing, stream=True)
            heard.set()
            with pytest.raises(openai.APIError, match="the server failed"):
                _ = [piece async for piece in stream]
            await stream.close()


# the application by itself, on trio too


class Talk:
    """The server's side of one request, without a server."""

    def __init__(self, app: Starlette, body: bytes = b'{"messages": [{"role": "user", "content": "Hi"}], "stream": true}'):
        self.app = app
        self.body: list[bytes] = [body]
        self.sent: list[Any] = []
        self.gone = anyio.Event()
        headers = [(b"host", b"localhost"), (b"content-type", b"application/json"), (b"x-conversation-id", b"c")]
        path = "/v1/chat/completions"
        self.scope = {
            "type": "http",
            "method": "POST",
            "path": path,
            "root_path": "",
            "headers": headers,
            "query_string": b"",
        }

    async def receive(self) -> Any:
        if self.body:
            return {"type": "http.request", "body": self.body.pop(), "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Any) -> None:
        self.sent.append(message)
        if b'"two "' in message.get("body", b""):
            self.gone.set()

    async def run(self) -> None:
        with anyio.fail_after(SECONDS):
            await self.app(self.scope, self.receive, self.send)


async def test_the_application_runs_anywhere_and_notices_who_leaves() -> None:
    model = Endless("one ", "two ")
    chain, memory, ended = remembering(model)
    await Talk(create_app(chain)).run()
    assert await ended.next() == "cancelled"
    assert list(await memory.get("c")) == PARTIAL
    assert (model.opened, model.closed) == (1, 1)


async def test_a_server_that_raises_when_the_client_has_left() -> None:
    model = Endless("one ", "two ", "three")
    chain, memory, ended = remembering(model)

    class Raising(Talk):
        async def send(self, message: Any) -> None:
            if b'"three"' in message.get("body", b""):
                raise OSError("gone")
            self.sent.append(message)

    await Raising(create_app(chain)).run()
    assert await ended.next() == "closed"
    assert (await memory.get("c"))[-1] == AssistantMessage("one two three", partial=True)
    assert (model.opened, model.closed) == (1, 1)


async def test_a_client_that_has_left_when_an_error_is_to_be_told() -> None:
    class Raising(Talk):
        async def send(self, message: Any) -> None:
            raise OSError("gone")

    model = ScriptedModel([RuntimeError()])
    await Raising(create_app(AdvisorChain(model))).run()
    assert (model.opened, model.closed) == (1, 1)


async def test_a_client_that_is_found_gone_by_a_comment_stops_the_model(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reply, "_QUIET_SECONDS", 0.01)
    model = Endless()
    chain, _, ended = remembering(model)

    class Raising(Talk):
        async def send(self, message: Any) -> None:
            raise OSError("gone")

    await Raising(create_app(chain)).run()
    assert await ended.next() == "cancelled"
    assert (model.opened, model.closed) == (1, 1)


async def test_a_reader_that_takes_nothing_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_reply, "_STALLED_SECONDS", 0.01)
    model = Endless("one ", "two ")
    chain, _, ended = remembering(model)

    class Stalled(Talk):
        async def send(self, message: Any) -> None:
            if b'"two "' in message.get("body", b""):
                await anyio.sleep_forever()

    app = create_app(chain, max_streams=1)
    await Stalled(app).run()
    assert await ended.next() == "closed"
    await Talk(app).run()  # its place is free again
    assert (model.opened, model.closed) == (2, 2)


async def test_a_client_that_leaves_while_it_sends_gives_its_place_back() -> None:
    model = Endless("one ", "two ")
    app = create_app(AdvisorChain(model), max_streams=1)
    talk = Talk(app)
    talk.body = []
    talk.gone.set()
    await talk.run()
    assert (model.opened, talk.sent) == (0, [])
    await Talk(app).run()
    assert model.closed == 1


# bodies


class Slowly(Talk):
    """A body whose end does not come before it is told to."""

    def __init__(self, app: Starlette, size: int = 1) -> None:
        super().__init__(app)
        self.rest = self.body.pop()
        self.begun, self.go_on = anyio.Event(), anyio.Event()
        self.body = [self.rest[:1] + b" " * (size - 1)]

    async def receive(self) -> Any:
        if self.body:
            return {"type": "http.request", "body": self.body.pop(), "more_body": True}
        if self.rest:
            self.begun.set()
            await self.go_on.wait()
            rest, self.rest = self.rest[1:], b""
            return {"type": "http.request", "body": rest, "more_body": False}
        await self.gone.wait()
        return {"type": "http.disconnect"}

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])


async def test_a_body_that_does_not_end_is_a_408(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_body, "_SECONDS", 0.01)
    model = ScriptedModel()
    talk = Slowly(create_app(AdvisorChain(model)))
    await talk.run()
    assert talk.status == 408
    assert (b"connection", b"close") in talk.sent[0]["headers"]
    assert b'"timeout"' in talk.sent[1]["body"]
    assert not model.requests


async def test_a_stalled_body_holds_no_place() -> None:
    model = Endless("one ", "two ")
    app = create_app(AdvisorChain(model), max_streams=1)
    stalled = Slowly(app)
    async with anyio.create_task_group() as group:
        group.start_soon(stalled.run)
        await stalled.begun.wait()
        other = Talk(app)
        await other.run()
        assert other.sent[0]["status"] == 200
        stalled.go_on.set()
    assert stalled.status == 200
    assert (model.opened, model.closed) == (2, 2)


async def test_a_body_that_ends_when_all_places_are_taken_is_a_429() -> None:
    model = Endless("one ")
    app = create_app(AdvisorChain(model), max_streams=1)
    late, first = Slowly(app), Talk(app)
    async with anyio.create_task_group() as group:
        group.start_soon(late.run)
        await late.begun.wait()
        group.start_soon(first.run)
        assert await to_thread.run_sync(model.silent.wait, SECONDS)
        late.go_on.set()
        await until(lambda: bool(late.sent))
        first.gone.set()
    assert late.status == 429
    assert app.state.turns.places_taken == app.state.turns.bytes_held == 0


async def test_all_bodies_under_way_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_app, "_HELD", 0)
    app = create_app(AdvisorChain(Endless("one ", "two ")), max_body=1000)  # 4000 for all
    held = [Slowly(app, 900) for _ in range(4)]
    async with anyio.create_task_group() as group:
        for talk in held:
            group.start_soon(talk.run)
            await talk.begun.wait()
        assert app.state.turns.bytes_held == 3600
        one_more = Slowly(app, 900)
        await one_more.run()
        assert (one_more.status, b"too_many_streams" in one_more.sent[1]["body"]) == (429, True)
        for talk in held:
            talk.go_on.set()
    assert [talk.status for talk in held] == [200] * 4
    assert app.state.turns.bytes_held == 0


async def test_what_was_read_is_counted_for_as_long_as_it_is_answered() -> None:
    model = Endless("one ")
    app = create_app(AdvisorChain(model))
    talk = Talk(app)
    async with anyio.create_task_group() as group:
        group.start_soon(talk.run)
        assert await to_thread.run_sync(model.silent.wait, SECONDS)
        assert app.state.turns.bytes_held > 0
        talk.gone.set()
    assert app.state.turns.bytes_held == 0


async def test_a_body_under_way_is_ended_with_the_application() -> None:
    app = create_app(AdvisorChain(ScriptedModel()))
    stalled = Slowly(app)
    async with anyio.create_task_group() as group:
        async with app.router.lifespan_context(app):
            group.start_soon(stalled.run)
            await stalled.begun.wait()
    assert stalled.status == 503


async def test_a_large_body_is_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    threads: list[bool] = []
    read = _turns.read_asked

    def noted(*args: Any, **how: Any) -> Any:
        threads.append(threading.current_thread() is loop)
        return read(*args, **how)

    monkeypatch.setattr(_turns, "read_asked", noted)
    loop = threading.current_thread()
    for size in (100, 1_000_000):
        text = json.dumps({"messages": [{"role": "user", "content": "a" * size}]}).encode()
        talk = Talk(create_app(AdvisorChain(ScriptedModel("b"))), text)
        await talk.run()
        assert talk.sent[0]["status"] == 200
    assert threads == [True, False]


class Part(BaseAdvisor):
    name = "part"

    def __init__(self) -> None:
        self.events: list[str] = []

    def before(self, request: ChatRequest) -> ChatRequest:
        return request

    async def __aenter__(self) -> Part:
        self.events.append("opened")
        return self

    async def __aexit__(self, *_: object) -> None:
        self.events.append("closed")


async def test_the_application_opens_and_closes_what_the_chain_owns_after_the_last_turn() -> None:
    part, model = Part(), Endless("one ")
    chain, memory, ended = remembering(model, part)
    app = create_app(chain)
    talk = Talk(app)
    async with anyio.create_task_group() as group:
        async with app.router.lifespan_context(app):
            assert part.events == ["opened"]
            group.start_soon(talk.run)
            assert await to_thread.run_sync(model.silent.wait, SECONDS)
        assert part.events == ["opened", "closed"]
        assert ended.wait() == "cancelled"  # before the part was closed, so it is there already
    assert b"shutting down" in talk.sent[-1]["body"]
    assert talk.sent[-1]["more_body"] is False
    assert [message.text for message in await memory.get("c")] == ["Hi", "one "]


@pytest.mark.parametrize("door", [lambda chain: chain, lambda chain: ChatClient(ScriptedModel(), advisors=chain.advisors)])
async def test_a_chain_that_is_open_stays_its_givers(door: Callable[[AdvisorChain], Any]) -> None:
    part = Part()
    async with door(AdvisorChain(ScriptedModel(), [part])) as chain:
        app = create_app(chain)
        async with app.router.lifespan_context(app):
            assert part.events == ["opened"]
        assert part.events == ["opened"]
    assert part.events == ["opened", "closed"]


async def test_a_system_message_of_a_client_is_one() -> None:
    model = ScriptedModel("a")
    body = b'{"messages": [{"role": "developer", "content": "Be brief."}, {"role": "user", "content": "Hi"}]}'
    talk = Talk(create_app(AdvisorChain(model)), body)
    await talk.run()
    assert model.prompts == [(SystemMessage("Be brief."), UserMessage("Hi"))]
    assert [message.get("status") for message in talk.sent] == [200, None]


def test_serve_that_is_cancelled_keeps_what_was_seen_and_closes_what_it_opened() -> None:
    part, model = Part(), Endless("one ", "two ")
    chain, memory, ended = remembering(model, part)

    async def main() -> list[Any]:
        ready: list[str] = []
        async with anyio.create_task_group() as group:
            serving = anyio.CancelScope()

            async def run() -> None:
                with serving:
                    await serve(chain, port=0, on_ready=ready.append)

            group.start_soon(run)
            await until(lambda: bool(ready))
            async with openai.AsyncOpenAI(base_url=f"{ready[0]}/v1", api_key="any", max_retries=0) as client:
                create: Callable[..., Any] = client.chat.completions.create
                stream = await create(model="chain", messages=HI, stream=True, extra_headers=NAMED)
                with pytest.raises(openai.APIError, match="shutting down"):
                    async for piece in stream:
                        if piece.choices[0].delta.content == "two ":
                            serving.cancel()
                await stream.close()
        return list(await memory.get("c"))

    assert anyio.run(main) == PARTIAL
    assert ended.wait() == "cancelled"
    assert part.events == ["opened", "closed"]
    assert (model.opened, model.closed) == (1, 1)
