"""The client without `await`: the same laws, from threads, scripts, notebooks, and when it is interrupted."""

from __future__ import annotations

import gc
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
import weakref
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import aclosing, contextmanager
from contextvars import ContextVar, copy_context
from functools import partial
from pathlib import Path
from typing import Any

import anyio
import pytest
from anyio import to_thread
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from pydantic import BaseModel

from advisorchain import BaseAdvisor, ChatChunk, ChatRequest, ChatResponse, Outcome, Telemetry
from advisorchain._client import worker
from advisorchain.client import TypedResponse
from advisorchain.errors import (
    ConfigurationError,
    ConversationIdError,
    InvalidInputError,
    OutputValidationError,
    StreamError,
)
from advisorchain.hooks import before
from advisorchain.memory import ChatMemory, SqliteChatMemoryRepository, open_repository
from advisorchain.sync_client import SyncChatClient
from advisorchain.testing import RecordingAdvisor, ScriptedModel

from ._client_laws import MAKE, check_door, without

ROOT = Path(__file__).parent.parent


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> Any:
    return request.param


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    yield
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("SyncChatClient")]


class Words(ScriptedModel):
    """Says how far it has come."""

    yielded = 0

    async def stream(self, request: ChatRequest) -> Any:
        async with aclosing(super().stream(request)) as chunks:
            async for chunk in chunks:
                self.yielded += 1
                yield chunk


# -- the laws


class Door:
    """A SyncChatClient as the laws see a chain: each of its calls in a thread of its own."""

    def __init__(self, opened: list[SyncChatClient], backend: Any, model: Any, advisors: list[Any]) -> None:
        self._client = SyncChatClient(model, advisors=advisors, telemetry=None, backend=backend)
        opened.append(self._client)

    async def call(self, prompt: str, **how: Any) -> ChatResponse:
        return await to_thread.run_sync(partial(self._client.call, prompt, **how))

    def stream(self, prompt: str, **how: Any) -> DoorStream:
        return DoorStream(self._client.stream(prompt, **how))


class DoorStream:
    def __init__(self, stream: Any) -> None:
        self._stream = stream

    async def __aenter__(self) -> DoorStream:
        await to_thread.run_sync(self._stream.__enter__)
        return self

    async def __aexit__(self, *how: Any) -> None:
        await to_thread.run_sync(self._stream.__exit__, *how)

    def __aiter__(self) -> DoorStream:
        return self

    async def __anext__(self) -> ChatChunk:
        chunk: ChatChunk | None = await to_thread.run_sync(next, iter(self._stream), None)
        if chunk is None:
            raise StopAsyncIteration
        return chunk

    @property
    def response(self) -> ChatResponse:
        response: ChatResponse = self._stream.response
        return response


@pytest.mark.parametrize("make", MAKE)
@pytest.mark.parametrize("law", without("cancellation goes through"))  # there are no tasks to cancel; see Ctrl-C below
async def test_the_sync_client_keeps_the_laws(law: str, make: str, anyio_backend: str) -> None:
    opened: list[SyncChatClient] = []
    try:
        await check_door(law, partial(Door, opened, anyio_backend), MAKE[make])
    finally:
        for client in opened:
            client.close()


# -- calls and streams


def test_a_call_and_a_stream(backend: Any) -> None:
    log = RecordingAdvisor("log")
    with SyncChatClient(ScriptedModel("one two", repeat=True), advisors=[log], backend=backend) as client:
        assert client.call("hi").text == "one two"
        with client.stream("hi") as stream:
            assert [chunk.text for chunk in stream] == ["one", " two"]
            assert next(stream, None) is None
        assert stream.response == stream.partial == client.call("hi")
        assert repr(client) == "<SyncChatClient log@0 > scripted>"
        assert repr(stream) == "<SyncClientStream, read to its end>"
    assert [outcome.status for outcome in log.outcomes] == ["ok", "ok", "ok"]


@pytest.mark.parametrize("how", ["break", "close", "raise"])
def test_leaving_a_stream_closes_the_model_at_once_and_keeps_what_was_seen(backend: Any, how: str) -> None:
    model, log = Words("one two three four"), RecordingAdvisor("log")
    with SyncChatClient(model, memory=ChatMemory(), advisors=[log], backend=backend) as client:
        try:
            with client.stream("hi", conversation_id="c") as stream:
                for chunk in stream:
                    if chunk.text == " two":
                        if how == "raise":
                            raise ZeroDivisionError
                        if how == "close":
                            stream.close()
                            assert list(stream) == []
                        break
                if how == "close":
                    assert model.open_streams == 0
        except ZeroDivisionError:
            assert how == "raise"
        assert model.open_streams == 0
        assert stream.partial is not None
        assert stream.partial.text == "one two"
        stored = client.history("c").items[-1].message
        assert (stored.text, getattr(stored, "partial", None)) == ("one two", True)
    assert [outcome.status for outcome in log.outcomes] == ["closed"]


def test_the_model_does_not_run_ahead_of_its_reader(backend: Any) -> None:
    model = Words(["x"] * 50)
    with SyncChatClient(model, backend=backend) as client:
        with client.stream("hi") as stream:
            for number, _ in zip(range(1, 6), stream, strict=False):
                client.run(anyio.sleep, 0)  # let the loop do what it would
                assert model.yielded <= number + 1


def test_a_stream_is_read_inside_with_and_entered_once(backend: Any) -> None:
    with SyncChatClient(ScriptedModel("a b", repeat=True), backend=backend) as client:
        stream = client.stream("hi")
        with pytest.raises(StreamError, match=r"inside `with client\.stream"):
            iter(stream)
        with pytest.raises(StreamError, match=r"inside `with client\.stream"):
            next(stream)
        typed = client.stream("hi", output_type=int)
        for look in (lambda: stream.response, lambda: typed.response, lambda: typed.output, lambda: next(typed.partials())):
            with pytest.raises(StreamError, match=r"inside `with client\.stream"):
                look()
        assert stream.partial is None
        for look in (lambda: stream.output, lambda: stream.partials()):
            with pytest.raises(StreamError, match="output_type="):
                look()
        stream.close()
        with stream:
            with pytest.raises(StreamError, match="not been read to its end"):
                _ = stream.response
            with pytest.raises(StreamError, match="entered already"):
                stream.__enter__()


def test_errors_keep_their_type_and_traceback(backend: Any) -> None:
    class OwnError(Exception):
        pass

    async def fails(request: ChatRequest) -> str:
        raise OwnError("no")

    async def fails_late(request: ChatRequest) -> Any:
        yield "one"
        raise OwnError("no")

    with SyncChatClient(fails, backend=backend) as client:
        with pytest.raises(OwnError) as raised:
            client.call("hi")
        assert "fails" in [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]
        with pytest.raises(InvalidInputError):
            client.call("")
        with pytest.raises(TypeError, match="temprature"):
            client.call("hi", temprature=1)
    with SyncChatClient(fails_late, backend=backend) as client:
        with pytest.raises(OwnError) as raised, client.stream("hi") as stream:
            list(stream)
        assert "fails_late" in [frame.name for frame in traceback.extract_tb(raised.value.__traceback__)]


def test_an_error_of_closing_is_raised_and_has_the_readers_as_its_cause(backend: Any) -> None:
    class Fails(BaseAdvisor):
        name = "fails"

        def done(self, request: ChatRequest, outcome: Outcome) -> None:
            raise OSError("done failed")

    with SyncChatClient(ScriptedModel("one two"), advisors=[Fails()], backend=backend) as client:
        with pytest.raises(OSError, match="done failed") as raised, client.stream("hi") as stream:
            next(stream)
            raise ZeroDivisionError
    assert isinstance(raised.value.__cause__, ZeroDivisionError)


def test_one_task_reads_a_stream_from_its_beginning_to_its_end(backend: Any) -> None:
    tasks = set()

    async def tells(request: ChatRequest) -> Any:
        try:
            for word in ("one", "two", "three"):
                tasks.add(anyio.get_current_task().id)
                yield word
        finally:
            tasks.add(anyio.get_current_task().id)

    with SyncChatClient(tells, backend=backend) as client, client.stream("hi") as stream:
        assert [next(stream).text, next(stream).text] == ["one", "two"]
    assert len(tasks) == 1


class Person(BaseModel):
    name: str
    age: int


def test_typed_answers(backend: Any) -> None:
    answer = ['{"name": "A', 'da", "age": 36}', ChatChunk(finish_reason="stop")]
    with SyncChatClient(ScriptedModel(answer, answer, answer, "no", "no", "no", "no"), backend=backend) as client:
        response = client.call("who?", output_type=Person)
        assert isinstance(response, TypedResponse)
        assert response.output == Person(name="Ada", age=36)
        with client.stream("who?", output_type=Person) as stream:
            assert list(stream.partials()) == [{"name": "A"}, {"name": "Ada", "age": 36}]
        assert stream.output == response.output
        assert stream.response == stream.partial == response
        assert stream.partial_output == {"name": "Ada", "age": 36}
        with client.stream("who?", output_type=Person) as stream:
            for partial_output in stream.partials():
                assert partial_output == {"name": "A"}
                break
        with pytest.raises(OutputValidationError):
            client.call("who?", output_type=Person)


# -- memory


def test_memory_is_reached_without_await(backend: Any) -> None:
    model = ScriptedModel("one", "two", "three")
    with SyncChatClient(model, system="sys", memory=ChatMemory(), backend=backend) as client:
        client.call("q1", conversation_id="c")
        with client.stream("q2", conversation_id="c") as stream:
            list(stream)
        with client.stream(conversation_id="c", turn="regenerate") as stream:
            list(stream)
        assert [entry.message.text for entry in client.history("c").items] == ["q1", "one", "q2", "three"]
        assert len(client.history("c", limit=1).items) == 1
        assert client.history("c", newest_first=True).items[0].message.text == "three"
        assert client.memory is not None
        assert client.run(client.memory.count, "c") == 4
        assert client.clear("c") is True
        assert client.clear("c") is False
        with pytest.raises(ConversationIdError):
            client.call("q1")
        with pytest.raises(InvalidInputError, match="no question yet"):
            with client.stream(conversation_id="c", turn="regenerate"):
                raise AssertionError
    with SyncChatClient(model, backend=backend) as client:
        assert client.memory is None
        with pytest.raises(ConfigurationError, match="no `memory`"):
            client.history("c")


def test_a_memory_in_a_file_needs_no_async(backend: Any, tmp_path: Path) -> None:
    for turn in (1, 2):
        repository = SqliteChatMemoryRepository(tmp_path / "chat.db")
        memory = ChatMemory(repository=repository)
        with SyncChatClient(ScriptedModel("yes"), memory=memory, backend=backend) as client:
            client.call("hi", conversation_id="ada")
            assert len(client.history("ada").items) == 2 * turn
            client.run(repository.aclose)
    with pytest.raises(ConfigurationError, match="SqliteChatMemoryRepository"):
        ChatMemory(repository=open_repository("sqlite://"))


# -- threads, loops and contexts


def test_calls_from_several_threads_never_meet(backend: Any) -> None:
    async def echo(request: ChatRequest) -> Any:
        for word in request.messages[-1].text.split():
            await anyio.lowlevel.checkpoint()
            yield f"{word} "

    with SyncChatClient(echo, memory=ChatMemory(), backend=backend) as client:

        def ask(number: int) -> str:
            prompt = f"the number {number} " * 5
            if number % 2:
                return client.call(prompt, conversation_id=f"c{number}").text
            with client.stream(prompt, conversation_id=f"c{number}") as stream:
                return "".join(chunk.text for chunk in stream)

        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(ask, range(40)))
        assert [answer.split()[2] for answer in answers] == [str(number) for number in range(40)]
        for number in range(40):
            assert [entry.message.text.split()[2] for entry in client.history(f"c{number}").items] == [str(number)] * 2


def test_two_threads_cannot_read_one_stream_at_a_time(backend: Any) -> None:
    reached, go = threading.Event(), threading.Event()

    async def waits(request: ChatRequest) -> Any:
        reached.set()
        await to_thread.run_sync(go.wait)
        yield "one"

    with SyncChatClient(waits, backend=backend) as client, client.stream("hi") as stream:
        with ThreadPoolExecutor(1) as pool:
            first = pool.submit(next, stream)
            reached.wait()
            with pytest.raises(StreamError, match="another thread is waiting"):
                next(stream)
            go.set()
            assert first.result().text == "one"


@pytest.mark.parametrize("where", ["iterating", "entering"])
def test_a_reader_whose_stream_another_thread_closes_is_told(backend: Any, where: str) -> None:
    reached = threading.Event()

    async def waits(request: ChatRequest) -> Any:
        reached.set()
        await anyio.sleep_forever()
        yield "one"

    class Slow(ChatMemory):
        async def last_turn(self, conversation_id: str) -> Any:
            reached.set()
            await anyio.sleep_forever()

    with SyncChatClient(waits, memory=Slow(), backend=backend) as client:
        stream = client.stream(
            None if where == "entering" else "hi",
            conversation_id="c",
            turn="regenerate" if where == "entering" else "new",
        )

        def read() -> None:
            with stream:
                list(stream)

        with ThreadPoolExecutor(1) as pool:
            reading = pool.submit(read)
            reached.wait(60)
            stream.close()
            with pytest.raises(StreamError, match="closed by another thread"):
                reading.result()


async def test_it_works_inside_a_running_loop() -> None:
    with SyncChatClient(ScriptedModel("one two", repeat=True)) as client:
        assert client.call("hi").text == "one two"
        with client.stream("hi") as stream:
            assert [chunk.text for chunk in stream] == ["one", " two"]


WHO: ContextVar[str] = ContextVar("who", default="nobody")


def test_advisors_see_the_callers_context(backend: Any) -> None:
    @before
    def who(request: ChatRequest) -> ChatRequest:
        return request.with_context(who=WHO.get())

    with SyncChatClient(ScriptedModel("x", repeat=True), advisors=[who], backend=backend) as client:

        def ask(name: str) -> list[Any]:
            WHO.set(name)
            with client.stream("hi") as stream:
                list(stream)
            return [client.call("hi").context["who"], stream.response.context["who"]]

        assert copy_context().run(ask, "ada") == ["ada", "ada"]
        assert copy_context().run(ask, "eve") == ["eve", "eve"]


def test_spans_are_children_of_the_callers(backend: Any) -> None:
    exporter, provider = InMemorySpanExporter(), TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(exporter))
    telemetry = Telemetry(tracer_provider=provider)
    with SyncChatClient(ScriptedModel("x", repeat=True), telemetry=telemetry, backend=backend) as client:
        with provider.get_tracer("test").start_as_current_span("outer") as outer:
            client.call("hi")
            with client.stream("hi") as stream:
                list(stream)
    chains = [span for span in exporter.get_finished_spans() if span.name != "outer"]
    assert {span.context.trace_id for span in chains if span.context} == {outer.get_span_context().trace_id}
    tops = [span for span in chains if span.parent and span.parent.span_id == outer.get_span_context().span_id]
    assert len(tops) == 2


def test_a_hook_of_its_own_cannot_call_it(backend: Any) -> None:
    @before
    def calls(request: ChatRequest) -> ChatRequest:
        client.call("again")
        return request

    @before
    def closes(request: ChatRequest) -> ChatRequest:
        client.close()
        return request

    with SyncChatClient(ScriptedModel("x"), advisors=[calls], backend=backend) as client:
        with pytest.raises(ConfigurationError, match="called from a hook that runs in it"):
            client.call("hi")
    with SyncChatClient(ScriptedModel("x"), advisors=[closes], backend=backend) as client:
        with pytest.raises(ConfigurationError, match="cannot be closed by a hook"):
            client.call("hi")


# -- opening and closing


class Opened(ScriptedModel):
    state = "new"
    refuses = False

    async def __aenter__(self) -> Opened:
        if self.refuses:
            raise FileNotFoundError("no weights")
        self.state = "open"
        return self

    async def __aexit__(self, *_: object) -> None:
        self.state = "closed"


def test_the_parts_are_open_from_the_first_call_to_the_end(backend: Any) -> None:
    model = Opened("x", repeat=True)
    client = SyncChatClient(model, backend=backend)
    assert model.state == "new"
    client.call("hi")
    client.call("hi")
    assert model.state == "open"
    client.close()
    client.close()
    assert model.state == "closed"


def test_after_closing_there_is_a_clear_error(backend: Any) -> None:
    client = SyncChatClient(ScriptedModel("one two", repeat=True), memory=ChatMemory(), backend=backend)
    with client, client.stream("hi", conversation_id="c") as stream:
        next(stream)
        client.close()
        with pytest.raises(ConfigurationError, match="`chat` is closed; make another one"):
            next(stream)
    for ask in (lambda: client.call("hi"), lambda: client.stream("hi").__enter__(), lambda: client.history("c")):
        with pytest.raises(ConfigurationError, match="`chat` is closed"):
            ask()
    unused = SyncChatClient(ScriptedModel("x"), backend=backend)
    unused.close()
    with pytest.raises(ConfigurationError, match="is closed"):
        unused.call("hi")


def test_closing_cancels_what_runs(backend: Any) -> None:
    reached = threading.Semaphore(0)
    log = RecordingAdvisor("log")

    async def waits(request: ChatRequest) -> Any:
        yield "one"
        reached.release()
        await anyio.sleep_forever()

    client = SyncChatClient(waits, memory=ChatMemory(), advisors=[log], backend=backend)
    memory = client.memory

    def read() -> None:
        with client.stream("hi", conversation_id="c") as stream:
            list(stream)

    with ThreadPoolExecutor(2) as pool:
        calling, reading = pool.submit(client.call, "hi", conversation_id="d"), pool.submit(read)
        reached.acquire()
        reached.acquire()
        client.close()
        for asking in (calling, reading):
            with pytest.raises(ConfigurationError, match="is closed"):
                asking.result()
    assert [outcome.status for outcome in log.outcomes] == ["cancelled", "cancelled"]
    assert memory is not None
    assert anyio.run(memory.count, "c") == 2


def test_several_threads_may_close_it(backend: Any) -> None:
    client = SyncChatClient(ScriptedModel("x"), backend=backend)
    client.call("hi")
    with ThreadPoolExecutor(4) as pool:
        assert [done.result() for done in [pool.submit(client.close) for _ in range(8)]] == [None] * 8


def test_what_cannot_be_opened_is_told_and_may_be_tried_again(backend: Any) -> None:
    model = Opened("x")
    model.refuses = True
    with SyncChatClient(model, backend=backend) as client:
        with pytest.raises(FileNotFoundError, match="no weights"):
            client.call("hi")
        model.refuses = False
        assert client.call("hi").text == "x"
    model.refuses = True
    with SyncChatClient(model, backend=backend) as client:
        with pytest.raises(FileNotFoundError, match="no weights"):
            client.call("hi")


def test_a_failed_start_that_is_noticed_late_leaves_the_next_one_alone(
    backend: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    noticed, go = threading.Event(), threading.Event()

    class Late(Future[Any]):
        def result(self, timeout: float | None = None) -> Any:
            try:
                return super().result(timeout)
            finally:
                if threading.current_thread().name.startswith("late"):
                    noticed.set()
                    go.wait(60)

    class Refusing(Opened):
        entered = 0

        async def __aenter__(self) -> Opened:
            self.entered += 1
            if self.entered == 1:
                await to_thread.run_sync(begun.wait)
                raise FileNotFoundError("no weights")
            return self

    begun = threading.Event()
    monkeypatch.setattr(worker, "Future", Late)
    model = Refusing("x", repeat=True)
    with SyncChatClient(model, backend=backend) as client, ThreadPoolExecutor(1, "late") as pool:
        late = pool.submit(client.call, "hi")
        begun.set()
        noticed.wait(60)
        with pytest.raises(FileNotFoundError):
            client.call("hi")
        assert client.call("hi").text == "x"
        go.set()
        with pytest.raises(FileNotFoundError):
            late.result()
        assert client.call("hi").text == "x"
    assert model.entered == 2


def test_what_closing_raises_is_raised(backend: Any) -> None:
    class Fails(ScriptedModel):
        async def aclose(self) -> None:
            raise OSError("cannot close")

    client = SyncChatClient(Fails("x"), backend=backend)
    client.call("hi")
    with pytest.raises(OSError, match="cannot close"):
        client.close()


def test_a_client_that_is_forgotten_ends_its_thread(backend: Any) -> None:
    model = Opened("one two", repeat=True)
    client = SyncChatClient(model, backend=backend)
    client.call("hi")
    (thread,) = [thread for thread in threading.enumerate() if thread.name == "SyncChatClient `chat`"]
    with client.stream("hi") as stream:
        forgotten = weakref.ref(client)
        del client
        gc.collect()
        assert [chunk.text for chunk in stream] == ["one", " two"]  # a stream keeps its client
    del stream
    gc.collect()
    assert forgotten() is None
    thread.join(60)
    assert model.state == "closed"


def test_an_unknown_backend_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="`backend` is 'uvloop'"):
        SyncChatClient(ScriptedModel(), backend="uvloop")


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system cannot fork")
@pytest.mark.filterwarnings("ignore:This process")  # of the fork itself, since there are threads
def test_in_a_forked_process_it_is_told() -> None:
    code = """
import os
from advisorchain.sync_client import SyncChatClient
async def model(request): return "x"
client = SyncChatClient(model)
client.call("hi")
child = os.fork()
try:
    client.call("hi")
except ValueError as error:
    assert "before this process was forked" in str(error), error
    client.close()
    os._exit(7)
assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 7
print("told")
"""
    assert script(code, "-W", "ignore") == "told\n"


def script(code: str, *options: str, folder: Path | None = None) -> str:
    command = [sys.executable, *(options or ("-W", "error")), "-c", code]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60, cwd=folder)
    assert (ran.returncode, ran.stderr) == (0, "")
    return ran.stdout


@pytest.mark.parametrize("backend", ["asyncio", "trio"])
def test_a_script_that_closes_nothing_ends_and_closes_the_model(backend: str) -> None:
    code = f"""
from advisorchain.sync_client import SyncChatClient
class Model:
    name = provider = "m"
    async def call(self, request): return "said"
    async def aclose(self): print("closed")
client = SyncChatClient(Model(), backend={backend!r})
print(client.call("hi").text)
"""
    assert script(code) == "said\nclosed\n"


# -- Ctrl-C


@contextmanager
def ctrl_c_when(reached: threading.Event) -> Iterator[None]:
    """Interrupt this, the main thread, once `reached` is set; again when it was just about to wait and did not notice."""
    noticed = threading.Event()

    def press() -> None:
        reached.wait(60)
        noticed.wait(0.05)  # by then it waits
        while not noticed.is_set():
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
            noticed.wait(20)  # a second one while it still deals with the first would end the test

    thread = threading.Thread(target=press)
    thread.start()
    try:
        yield
    finally:
        noticed.set()
        thread.join()


@pytest.mark.skipif(not hasattr(signal, "pthread_kill"), reason="signals are not sent to threads here")
@pytest.mark.parametrize("mode", ["call", "stream", "enter", "body"])
def test_ctrl_c_closes_the_model_and_keeps_what_was_seen(backend: Any, mode: str) -> None:
    reached = threading.Event()
    log = RecordingAdvisor("log")

    async def waits(request: ChatRequest) -> Any:
        yield "one"
        if mode != "body":
            reached.set()
        await anyio.sleep_forever()

    class Slow(ChatMemory):
        async def last_turn(self, conversation_id: str) -> Any:
            reached.set()
            await anyio.sleep_forever()

    memory = Slow() if mode == "enter" else ChatMemory()
    with SyncChatClient(waits, memory=memory, advisors=[log], backend=backend) as client:
        with pytest.raises(KeyboardInterrupt), ctrl_c_when(reached):
            if mode == "call":
                client.call("hi", conversation_id="c")
            elif mode == "enter":
                with client.stream(conversation_id="c", turn="regenerate"):
                    raise AssertionError
            else:
                with client.stream("hi", conversation_id="c") as stream:
                    for _ in stream:
                        if mode == "body":
                            reached.set()
                            threading.Event().wait(60)
        ended = [outcome.status for outcome in log.outcomes]
        assert ended == {"call": ["cancelled"], "stream": ["cancelled"], "enter": [], "body": ["closed"]}[mode]
        stored = [entry.message.text for entry in client.history("c").items]
        assert stored == (["hi", "one"] if mode in ("stream", "body") else [])


# -- examples


def test_the_script_example() -> None:
    command = [sys.executable, "-W", "error", str(ROOT / "examples" / "sync_script.py")]
    ran = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (ran.returncode, ran.stderr) == (0, "")
    assert "stored: 4 messages" in ran.stdout


async def test_the_notebook_example_runs_in_a_running_loop(capsys: pytest.CaptureFixture[str]) -> None:
    notebook = json.loads((ROOT / "examples" / "notebook.ipynb").read_text(encoding="utf-8"))
    assert (notebook["nbformat"], notebook["nbformat_minor"]) == (4, 5)
    assert len({cell["id"] for cell in notebook["cells"]}) == len(notebook["cells"])
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert (cell["outputs"], cell["execution_count"]) == ([], None)
            exec(compile("".join(cell["source"]), "notebook.ipynb", "exec"), namespace)
    assert "again: " in capsys.readouterr().out
