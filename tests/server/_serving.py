"""An application on a real port of loopback, in a thread of its own; and what tells when a turn has ended there."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from queue import SimpleQueue
from typing import Any

import httpx2
import uvicorn
from anyio import to_thread
from openai import AsyncOpenAI, OpenAI

from advisorchain import HIGHEST_PRECEDENCE, AdvisorChain, BaseAdvisor, ChatRequest, Outcome
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.memory import ChatMemory
from advisorchain.server import create_app

HI: list[Any] = [{"role": "user", "content": "Hi"}]
# At [DONE] the client lets go of its own generators without closing them, which trio, and only trio, says aloud.
CLIENT_LETS_GO = "ignore:Async generator '(openai|httpx2|httpcore2)[.]:ResourceWarning"
SECONDS = 30  # far more than anything here takes


class Ended(BaseAdvisor):
    """The outermost: when its `done` runs, memory has stored what it stores."""

    name, order = "ended", HIGHEST_PRECEDENCE

    def __init__(self) -> None:
        self.outcomes: SimpleQueue[str] = SimpleQueue()

    def done(self, request: ChatRequest, outcome: Outcome) -> None:
        self.outcomes.put(outcome.status)

    def wait(self) -> str:
        return self.outcomes.get(timeout=SECONDS)

    async def next(self) -> str:
        return await to_thread.run_sync(self.wait)


class Served:
    """A running server."""

    def __init__(self, app: Any) -> None:
        config = uvicorn.Config(app, port=0, log_config=None, access_log=False, timeout_graceful_shutdown=SECONDS)
        self.server = uvicorn.Server(config)
        self.thread = threading.Thread(target=self.server.run)
        self._ready = threading.Event()
        startup = self.server.startup

        async def started(sockets: Any = None) -> None:
            await startup(sockets)
            self._ready.set()

        self.server.startup = started

    def start(self) -> None:
        self.thread.start()
        assert self._ready.wait(SECONDS)
        self.root = f"http://127.0.0.1:{self.server.servers[0].sockets[0].getsockname()[1]}"
        self.url = f"{self.root}/v1"

    def stop(self) -> None:
        self.server.should_exit = True
        self.thread.join(SECONDS)
        assert not self.thread.is_alive()

    def sync_client(self, key: str = "any", **settings: Any) -> OpenAI:
        return OpenAI(base_url=self.url, api_key=key, timeout=SECONDS, **{"max_retries": 0, **settings})

    def client(self, key: str = "any", **settings: Any) -> AsyncOpenAI:
        return AsyncOpenAI(base_url=self.url, api_key=key, timeout=SECONDS, **{"max_retries": 0, **settings})


@contextmanager
def served(chain: Any, **settings: Any) -> Iterator[Served]:
    """Serve `chain` with the settings of `create_app`."""
    with running(create_app(chain, **{"model_name": "demo", **settings})) as server:
        yield server


@contextmanager
def running(app: Any) -> Iterator[Served]:
    """Serve an application."""
    server = Served(app)
    server.start()
    try:
        yield server
    finally:
        server.stop()


class Door:
    """One served object for many tests, each of which puts its chain behind it. With a named conversation or without."""

    chain: Any

    async def call(self, prompt: Any, **how: Any) -> Any:
        return await self.chain.call(prompt, **how)

    def stream(self, prompt: Any, **how: Any) -> Any:
        return self.chain.stream(prompt, **how)


class Shared(Served):
    """A server that is made once, its door, and clients that are made once: their certificates take long to be loaded."""

    def __init__(self, **settings: Any) -> None:
        self.door = Door()
        super().__init__(create_app(self.door, **{"model_name": "demo", **settings}))

    def __enter__(self) -> Shared:
        self.start()
        self.openai = self.sync_client()
        self.http = httpx2.Client(base_url=self.url, timeout=SECONDS)
        return self

    def __exit__(self, *_: object) -> None:
        self.openai.close()
        self.http.close()
        self.stop()

    def behind(self, model: Any, *advisors: Any) -> Shared:
        """Itself, with a chain behind the door."""
        self.door.chain = AdvisorChain(model, advisors)
        return self

    def post(self, body: bytes | dict[str, Any], **headers: str) -> httpx2.Response:
        """Ask with a body, JSON or bytes."""
        content = body if isinstance(body, bytes) else json.dumps(body).encode()
        return self.http.post("/chat/completions", content=content, headers={"Content-Type": "application/json", **headers})


def remembering(model: Any, *advisors: Any) -> tuple[AdvisorChain, ChatMemory, Ended]:
    """A chain with a memory, and what tells when a turn has ended."""
    memory, ended = ChatMemory(), Ended()
    return AdvisorChain(model, [MessageChatMemoryAdvisor(memory), ended, *advisors]), memory, ended
