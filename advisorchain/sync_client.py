"""The client for scripts and notebooks: no `await`, and the same answers."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from functools import partial
from types import TracebackType
from typing import Any, Final, Literal, ParamSpec, Self, TypeVar, Unpack, get_args, overload
from weakref import finalize

from advisorchain._chain.run import GRACE
from advisorchain._checked import checked_one_of
from advisorchain._client.answers import TypedStream
from advisorchain._client.arguments import Values, taking
from advisorchain._client.sync_stream import SyncStream, SyncTypedStream
from advisorchain._client.worker import Worker
from advisorchain.advisor import AdvisorLike
from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.client import CallOptions, ChatClient, ClientPrompt, TypedResponse
from advisorchain.exchange import ChatOptions, ChatResponse
from advisorchain.memory.chat_memory import ChatMemory
from advisorchain.memory.repository import Entry, Page
from advisorchain.messages import SystemMessage
from advisorchain.model import ModelLike
from advisorchain.output import OutputType
from advisorchain.prompt_template import PromptTemplate
from advisorchain.telemetry import SHARED, Telemetry

__all__ = ["SyncChatClient", "SyncStream", "SyncTypedStream"]

T = TypeVar("T")
P = ParamSpec("P")
Backend = Literal["asyncio", "trio"]


class SyncChatClient:
    """A `ChatClient` that is called without `await`: in scripts, in notebooks, from any number of threads at once.

    Its work is done in one thread with one event loop, which starts with the first call and has the model and the advisors
    open all its life; so a running event loop of the caller does not matter. `close`, or leaving `with`, cancels what runs,
    closes all of it and ends the thread. Forgetting the client, or the end of the script, does so too.

    Ctrl-C during a call or while a chunk is awaited cancels it; an answer that was seen in part is remembered as that.

    The memory stays its giver's. For one in a SQLite file make the repository itself, which needs no `async with`:

        repository = SqliteChatMemoryRepository("chat.db")
        with SyncChatClient(model, memory=ChatMemory(repository=repository)) as client:
            client.call("Hello.", conversation_id="ada")
            client.run(repository.aclose)

    Closing it is for tidiness: each turn is in the file when its call returns, also of a script that ends without.

    Args:
        model, system, values, memory, advisors, tools, options, context, name, telemetry, grace: as for ChatClient.
        backend: what the event loop is, "asyncio" or "trio" (which has to be installed).

    Attributes:
        chain: the chain that is asked.
        memory: the memory, or None. Its methods are run by `run`.

    Raises:
        ConfigurationError: an argument that cannot work; later: the client was closed, or is called by a hook of its own.
    """

    def __init__(
        self,
        model: ModelLike,
        *,
        system: str | SystemMessage | PromptTemplate | None = None,
        values: Values | None = None,
        memory: ChatMemory | MessageChatMemoryAdvisor | None = None,
        advisors: Iterable[AdvisorLike] = (),
        tools: Iterable[Any] = (),
        options: ChatOptions | None = None,
        context: Mapping[str, Any] | None = None,
        name: str = "chat",
        telemetry: Telemetry | None = SHARED,
        grace: float = GRACE,
        backend: Backend = "asyncio",
    ) -> None:
        checked_one_of("backend", backend, get_args(Backend))
        self._client: Final = ChatClient(
            model,
            system=system,
            values=values,
            memory=memory,
            advisors=advisors,
            tools=tools,
            options=options,
            context=context,
            name=name,
            telemetry=telemetry,
            grace=grace,
        )
        self.chain: Final[AdvisorChain] = self._client.chain
        self.memory: Final[ChatMemory | None] = self._client.memory
        self._worker: Final = Worker(self._client, backend, f"SyncChatClient `{name}`")
        finalize(self, self._worker.forget).atexit = False  # the worker itself waits for its end then

    def __repr__(self) -> str:
        return repr(self._client).replace("<", "<Sync", 1)

    @overload
    def call(
        self, prompt: ClientPrompt | None = None, *, output_type: None = None, **options: Unpack[CallOptions]
    ) -> ChatResponse: ...
    @overload
    def call(
        self, prompt: ClientPrompt | None = None, *, output_type: type[T] | OutputType[T], **options: Unpack[CallOptions]
    ) -> TypedResponse[T]: ...
    @overload
    def call(
        self, prompt: ClientPrompt | None = None, *, output_type: Any, **options: Unpack[CallOptions]
    ) -> TypedResponse[Any]: ...
    @taking(ChatClient.call)
    def call(self, prompt: ClientPrompt | None = None, **options: Any) -> ChatResponse:
        """Ask, and wait for the whole answer. Arguments and errors are those of `ChatClient.call`."""
        return self._worker.run(partial(self._client.call, prompt, **options))

    @overload
    def stream(
        self, prompt: ClientPrompt | None = None, *, output_type: None = None, **options: Unpack[CallOptions]
    ) -> SyncStream: ...
    @overload
    def stream(
        self, prompt: ClientPrompt | None = None, *, output_type: type[T] | OutputType[T], **options: Unpack[CallOptions]
    ) -> SyncTypedStream[T]: ...
    @overload
    def stream(
        self, prompt: ClientPrompt | None = None, *, output_type: Any, **options: Unpack[CallOptions]
    ) -> SyncTypedStream[Any]: ...
    @taking(ChatClient.stream)
    def stream(self, prompt: ClientPrompt | None = None, **options: Any) -> SyncStream:
        """Ask, and read the answer in chunks: `with client.stream(…) as stream: for chunk in stream: …`.

        Arguments and errors are those of `ChatClient.stream`. The model goes on when the reader asks for the next chunk.
        """
        stream = self._client.stream(prompt, **options)
        kind = SyncTypedStream if isinstance(stream, TypedStream) else SyncStream
        return kind(self, self._worker, stream)

    def run(self, function: Callable[P, Awaitable[T]], *args: P.args, **more: P.kwargs) -> T:
        """What an async function returns, run where the client works: `client.run(client.memory.snapshot, "ada")`."""
        return self._worker.run(partial(function, *args, **more))

    def history(
        self, conversation_id: str, *, after: str | None = None, limit: int = 100, newest_first: bool = False
    ) -> Page[Entry]:
        """What is stored of a conversation, a page at a time; see `ChatClient.history`."""
        return self.run(self._client.history, conversation_id, after=after, limit=limit, newest_first=newest_first)

    def clear(self, conversation_id: str) -> bool:
        """Delete a conversation; False when there was none. See `ChatClient.clear`."""
        return self.run(self._client.clear, conversation_id)

    def close(self) -> None:
        """Cancel what runs, close the model and the advisors, end the thread, and wait for it. Closing twice is fine."""
        self._worker.stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()
