"""Answers that were given before, to exactly the same request."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any, Final

from pydantic import TypeAdapter

from advisorchain._checked import checked_seconds
from advisorchain._telemetry.log import log_event
from advisorchain.advisor import BaseAdvisor
from advisorchain.advisors._cache_stores import CacheStore, InMemoryCache, SqliteCache
from advisorchain.advisors._orders import CACHE_ORDER
from advisorchain.errors import ConfigurationError, MessageError, kind_of
from advisorchain.exchange import ChatOptions, ChatRequest, ChatResponse
from advisorchain.messages import AssistantMessage, Message, Usage, dump_message, load_message

__all__ = ["CacheAdvisor", "CacheStore", "InMemoryCache", "SqliteCache"]

_FORM: Final = 1  # of keys and values; what was stored in another is not found
_NOT_KEPT: Final = ("content_filter", "paused", "length", "tool_limit")
_OPTIONS: Final = TypeAdapter(ChatOptions)


class CacheAdvisor(BaseAdvisor):
    """Gives the answer that the same request was given before, without asking the rest of the chain.

    The same is: every message as the model is sent it, so with the history, the system texts and the media; all options,
    with tools and the form of the answer; the conversation. One letter more is another request. A conversation never gets
    the answer of another one unless the cache is `shared`; a request without a conversation id is then not looked up.

    An answer from the cache has `metadata["cached"]` and a usage of 0 tokens; in a stream it is one chunk. To have one made
    anew, leave this advisor out of the call: `without=["cache"]`. Not kept are answers that are blank, partial, cut off
    ("length"), refused, paused ("content_filter", "paused"), or that ask for tools.

    The tools of the chain's loop, and those that advisors further out offer, are in the key. What else advisors further in
    add (retrieved texts, another model, tools by `offer_tools`) is not, and does not happen at a hit. A turn that goes on
    after a person's yes or no is neither looked up nor kept. A store that fails costs no answer:
    `advisorchain.cache.failed` is logged, and the model is asked.

    Args:
        store: where answers are kept: an InMemoryCache of its own by default, a SqliteCache, or your own CacheStore. It
            stays its giver's to close.
        ttl: seconds for which an answer is given again; None: for as long as the store has it.
        shared: whether what was answered in one conversation is given in others, too, and without a conversation.
        scope: set apart what shares a store but not its answers, such as two models, prompt versions, or tenants.
        name: unique in the chain.
        order: outside the tool loop, inside memory by default.

    Raises:
        ConfigurationError: an argument that cannot work.
    """

    keeps_answers = True  # so an advisor that judges answers must stand further in
    answers_at_once = True

    def __init__(
        self,
        store: CacheStore | None = None,
        *,
        ttl: float | None = None,
        shared: bool = False,
        scope: str = "",
        name: str = "cache",
        order: int = CACHE_ORDER,
    ) -> None:
        if store is not None and not (callable(getattr(store, "get", None)) and callable(getattr(store, "put", None))):
            raise ConfigurationError(f"`store` is {kind_of(store)}; give an InMemoryCache, a SqliteCache or a CacheStore")
        if not isinstance(shared, bool):
            raise ConfigurationError(f"`shared` is {kind_of(shared)}; give True or False")
        if not isinstance(scope, str):
            raise ConfigurationError(f"`scope` is {kind_of(scope)}; give a text")
        self.store: CacheStore = InMemoryCache() if store is None else store
        self.ttl = None if ttl is None else checked_seconds("ttl", ttl)
        self.shared = shared
        self.scope = scope
        self.name = name
        self.order = order

    async def before(self, request: ChatRequest) -> ChatRequest | ChatResponse:
        """Answer from the store, or remember the key."""
        if (request.conversation_id is None and not self.shared) or _goes_on(request):
            return request
        key = self.key(request)
        try:
            found = await self.store.get(key)
        except Exception as error:
            self._failed(error)
            found = None
        answer = None if found is None else _loaded(found)
        return answer or request.replace(local={**request.local, self.name: key})

    async def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        """Keep the answer, if it is one to give again."""
        key = request.local.get(self.name)
        if key is not None and _is_to_be_kept(response):
            try:
                await self.store.put(key, _dumped(response), self.ttl)
            except Exception as error:
                self._failed(error)
        return response

    def key(self, request: ChatRequest) -> str:
        """What the answer to a request is kept under: a digest, which tells nothing of the request."""
        asked: dict[str, Any] = {
            "form": _FORM,
            "scope": self.scope,
            "conversation": None if self.shared else request.conversation_id,
            "messages": [_as_sent(message) for message in request.messages],
            "options": _OPTIONS.dump_python(request.options, mode="json"),
        }
        if beside := _beside(request):
            asked["beside"] = beside
        return sha256(json.dumps(asked, sort_keys=True, separators=(",", ":")).encode()).hexdigest()

    def _failed(self, error: Exception) -> None:
        log_event("warning", "advisorchain.cache.failed", advisor=self.name, error_type=type(error).__qualname__)


def _goes_on(request: ChatRequest) -> bool:
    """Whether a person has decided on a part of this turn, and not on the next one with the same words."""
    return any(getattr(value, "resumes", False) for value in request.local.values())


def _beside(request: ChatRequest) -> list[str]:
    """What the answer depends on that is not in the request: the tools that are offered further in."""
    telling = [*request._telling, *(value for value in request.local.values() if hasattr(value, "answers_depend_on"))]
    return [told for each in telling if (told := each.answers_depend_on())]


def _as_sent(message: Message) -> dict[str, Any]:
    """A message without what stays on this side of the model; what providers get back of their own is sent."""
    told: dict[str, Any] = json.loads(dump_message(message))
    for name in ("partial", "structured") if isinstance(message, AssistantMessage) else ("metadata", "structured"):
        told.pop(name, None)
    return told


def _is_to_be_kept(response: ChatResponse) -> bool:
    message = response.message
    unfit = message.tool_calls or message.partial or message.refusal or message.is_blank
    return not unfit and response.finish_reason not in _NOT_KEPT


def _dumped(response: ChatResponse) -> str:
    turn = [json.loads(dump_message(message)) for message in response.turn]
    told = {"finish_reason": response.finish_reason, "model": response.model, "id": response.id}
    return json.dumps({"turn": turn, **told}, separators=(",", ":"))


def _loaded(text: str) -> ChatResponse | None:
    """The answer that was stored; None: it is none of ours, and as good as not there."""
    try:
        told = json.loads(text)
        *earlier, message = [load_message(each) for each in told.pop("turn")]
        given: dict[str, Any] = {"message": message, "earlier": tuple(earlier), **told}
        return ChatResponse(**given, usage=Usage(0, 0), metadata={"cached": True})
    except (ValueError, TypeError, KeyError, AttributeError, MessageError):
        return None
