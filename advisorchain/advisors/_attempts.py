"""Attempts at one answer, one after the other: what a retry and a fallback share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Literal, TypeAlias, get_args

from advisorchain.advisor import StreamItem
from advisorchain.errors import ChatMemoryError, ConfigurationError, ModelError
from advisorchain.exchange import ChatChunk

__all__ = ["AfterFirstChunk", "checked_setting", "is_outage", "streamed"]

AfterFirstChunk: TypeAlias = Literal["raise", "attempt"]


def checked_setting(value: object) -> AfterFirstChunk:
    """`value` itself, as the setting `after_first_chunk`.

    Raises:
        ConfigurationError: it is none of its words.
    """
    for word in get_args(AfterFirstChunk):
        if value == word:
            return word  # type: ignore[no-any-return]
    raise ConfigurationError(f"`after_first_chunk` is {value!r}; give 'raise' or 'attempt'")


def is_outage(error: BaseException) -> bool:
    """Whether it is the model, or the way to it, that failed: not the request, and not a store."""
    # a lost lease is a TimeoutError too, and asking once more would not bring it back
    return isinstance(error, ModelError | ConnectionError | TimeoutError) and not isinstance(error, ChatMemoryError)


class _Shown:
    """What of the attempts so far has left.

    Attributes:
        anything: a reader has seen something. A plain chunk without text, which some providers begin with, is nothing.
        messages: how many messages have been streamed that still count.
        stale: these messages are those of an attempt that failed.
    """

    __slots__ = ("anything", "messages", "stale")

    def __init__(self) -> None:
        self.anything = self.stale = False
        self.messages = 1

    def add(self, item: StreamItem) -> None:
        if isinstance(item, ChatChunk) and (item.text or not item.plain):
            self.anything = True
            if item.boundary is not None:  # a loop further in has begun a message
                withdrawn = item.withdraws if item.boundary == "attempt" else 0
                self.messages = max(1, self.messages + 1 - withdrawn)

    def withdrawal(self) -> ChatChunk:
        chunk = ChatChunk(boundary="attempt", withdraws=self.messages)
        self.messages, self.stale = 1, False
        return chunk


async def streamed(
    ask: Callable[[], AsyncGenerator[StreamItem, None]],
    again: Callable[[Exception], Awaitable[None]],
    after_first_chunk: AfterFirstChunk,
) -> AsyncGenerator[StreamItem, None]:
    """The stream of the first attempt that does not fail.

    What a failed attempt has shown stays, and counts as partial, until there is something to put in its place.

    Args:
        ask: begins an attempt.
        again: told why one failed, returns when it is time for the next, or raises the error: there is none.
        after_first_chunk: whether there is another attempt also after something was shown.
    """
    shown = _Shown()
    while True:
        async with aclosing(ask()) as items:
            while True:
                # around the pull alone: what is raised while a reader leaves is never a reason to go on
                try:
                    item = await anext(items)
                except StopAsyncIteration:
                    return
                except Exception as error:
                    if shown.anything and after_first_chunk == "raise":
                        raise
                    await again(error)
                    shown.stale = shown.anything
                    break
                if shown.stale:
                    yield shown.withdrawal()
                shown.add(item)
                yield item
