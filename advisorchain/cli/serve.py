"""`advisorchain serve`: a chain of yours, or a model with a memory that lasts, as an OpenAI-compatible server."""

from __future__ import annotations

import logging
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from typing import Any, Final

import anyio

from advisorchain.advisors.chat_memory import MessageChatMemoryAdvisor
from advisorchain.chain import AdvisorChain
from advisorchain.cli.named_parts import load_model, open_chain, open_memory
from advisorchain.cli.options import API_KEY_ENV
from advisorchain.cli.text import explained, tell, tell_traceback
from advisorchain.errors import AdvisorChainError, ConfigurationError, InvalidInputError
from advisorchain.memory import ChatMemory, MessageWindow, Retention

__all__ = ["ServeSetting", "serve"]

_WINDOW: Final = 20
_UNNAMED: Final = ("chain", "chat")  # what an AdvisorChain and a ChatClient are called if nobody says otherwise


@dataclass(frozen=True, slots=True, kw_only=True)
class ServeSetting:
    """What the command line of `advisorchain serve` says. None: as `advisorchain.server.serve` has it."""

    chain: str | None
    model: str | None
    memory: str | None
    ttl: timedelta | None
    host: str
    port: int
    api_key_env: str | None
    model_name: str | None
    max_body: int | None
    max_streams: int | None
    allow_origins: tuple[str, ...]
    grace: float
    debug: bool


def serve(setting: ServeSetting) -> None:
    """Serve until SIGTERM or Ctrl-C.

    Raises:
        AdvisorChainError: the server cannot begin.
    """
    if setting.chain is not None and setting.model is not None:
        raise InvalidInputError("`--model` is for a server without a chain of yours; give one of both")
    key = _api_key(setting.api_key_env)
    logging.getLogger("advisorchain.server").addHandler(_Tell(setting.debug))
    try:
        anyio.run(_serve, setting, key)
    except Exception as error:
        if setting.debug:
            tell_traceback(error)
        if isinstance(error, AdvisorChainError):
            raise
        raise AdvisorChainError(explained(error, hint=not setting.debug)) from error


def _api_key(variable: str | None) -> str | None:
    key = os.environ.get(variable or API_KEY_ENV)
    if key is None and variable is not None:
        raise ConfigurationError(f"`--api-key-env` names `{variable}`, which is not set; set it to the key")
    if key is not None and not key.strip():
        raise ConfigurationError(f"the key in `{variable or API_KEY_ENV}` is blank; set one, or unset the variable")
    return key


async def _serve(setting: ServeSetting, key: str | None) -> None:
    from advisorchain.server import serve as run_server  # needs the extra `server`, which other commands do not

    limits = {"max_body": setting.max_body, "max_streams": setting.max_streams}
    async with _open_chain(setting) as (chain, name):
        name = setting.model_name or name
        await run_server(
            chain,
            host=setting.host,
            port=setting.port,
            api_key=key,
            model_name=name,
            allow_origins=setting.allow_origins,
            grace=setting.grace,
            on_ready=partial(_greet, name, setting),
            **{limit: value for limit, value in limits.items() if value is not None},
        )
    tell("stopped")


@asynccontextmanager
async def _open_chain(setting: ServeSetting) -> AsyncIterator[tuple[Any, str]]:
    """What is to be served, and what it is called."""
    if setting.chain is None:
        model = load_model(setting.model or "gguf", lambda _seconds: None)
        async with open_memory(setting.memory, create=True) as repository:
            retention = None if setting.ttl is None else Retention(setting.ttl)
            memory = ChatMemory(MessageWindow(_WINDOW), repository, retention=retention)
            name = str(getattr(model, "name", None) or getattr(model, "__name__", "chat"))
            yield AdvisorChain(model, [MessageChatMemoryAdvisor(memory)], name="serve"), name
        return
    async with open_chain("CHAIN", setting.chain) as chain:
        yield chain, _name_of(chain, setting.chain)


def _name_of(chain: object, place: str) -> str:
    """The name that whoever built the chain gave it, else that of its place."""
    name = getattr(getattr(chain, "chain", chain), "name", None)
    return name if isinstance(name, str) and name not in ("", *_UNNAMED) else place.rpartition(":")[2].rpartition(".")[2]


def _greet(name: str, setting: ServeSetting, url: str) -> None:
    key = f"the value of {setting.api_key_env or API_KEY_ENV}" if _api_key(setting.api_key_env) else "any text"
    tell(f"`{name}` is served at {url}/v1 for OpenAI clients and chat pages; Ctrl-C stops it.")
    tell(f"Base URL: {url}/v1   model: {name}   API key: {key}")
    tell("A request names its conversation in the header X-Conversation-Id; one that names none stands for itself.")


class _Tell(logging.Handler):
    """What went wrong behind an answer, on stderr."""

    def __init__(self, debug: bool) -> None:
        super().__init__()
        self._debug = debug
        if debug:
            logging.getLogger("advisorchain.server").setLevel(logging.DEBUG)

    def emit(self, record: logging.LogRecord) -> None:
        tell(f"advisorchain: {record.getMessage()}" + ("" if self._debug else " (--debug shows where)"))
        if record.exc_info and record.exc_info[1] is not None:
            tell_traceback(record.exc_info[1])
