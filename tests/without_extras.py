"""For an environment that has the package alone: it works, and what needs an extra says which one.

python -P -W error tests/without_extras.py
"""

from __future__ import annotations

import importlib
import tomllib
from collections.abc import Callable
from functools import partial
from pathlib import Path

import anyio

import advisorchain
from advisorchain.errors import MissingExtraError
from advisorchain.memory import ChatMemory, open_repository

PROJECT = Path(__file__).parent.parent / "pyproject.toml"
MODULES = {
    "anthropic": "models.anthropic",
    "cli": "cli.app",
    "encryption": "memory.repositories.encrypted",
    "local": "models.llama_cpp",
    "mongodb": "memory.repositories.mongodb",
    "openai": "models.openai",
    "prices": "prices",
    "redis": "memory.repositories.redis",
    "retry": "advisors.retry",
    "server": "server",
    "tools": "tools",
    "trace": "_span_data.otlp_protobuf",
}
SCHEMES = ("postgresql", "mysql", "mssql", "oracle")  # each has an extra of its name
NOT_SEEN = {"all", "sql", "mcp"}  # parts of others, or what needs them asks for another one first


async def model(request: advisorchain.ChatRequest) -> str:
    return "fine"


async def opened(url: str) -> None:
    async with open_repository(url):
        pass


def check_missing(extra: str, use: Callable[[], object]) -> None:
    told = "nothing is missing"
    try:
        use()
    except MissingExtraError as error:
        told = str(error)
    print(f"{extra}: {told}")
    assert f"advisorchain[{extra}]" in told


assert anyio.run(advisorchain.AdvisorChain(model).call, "hi").text == "fine"
with advisorchain.SyncChatClient(model, memory=ChatMemory()) as client:
    assert client.call("hi", conversation_id="c").text == "fine"
for extra, name in MODULES.items():
    check_missing(extra, partial(importlib.import_module, f"advisorchain.{name}"))
for scheme in SCHEMES:
    check_missing(scheme, partial(anyio.run, opened, f"{scheme}://h/x"))
extras = tomllib.loads(PROJECT.read_text(encoding="utf-8"))["project"]["optional-dependencies"]
assert {*MODULES, *SCHEMES} == extras.keys() - NOT_SEEN, "an extra is missing here"
