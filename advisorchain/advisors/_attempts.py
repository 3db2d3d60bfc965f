"""Attempts at one answer, one after the other: what retries, fallbacks and corrections share."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing
from typing import Literal, TypeAlias, get_args

from advisorchain._checked import checked_one_of
from advisorchain.advisor import StreamItem
from advisorchain.errors import ChatMemoryError, ModelError
from advisorchain.exchange import ChatChunk

__all__ = ["AfterFirstChunk", "ShownMessages", "checked_setting", "is_outage", "streamed"]

AfterFirstChunk: TypeAlias = Literal["raise", "attempt"]


def checked_setting(value: object) -> AfterFirstChunk:
    """`value` itself, as the setting `after_first_chunk`.

    Raises:
        ConfigurationError: it is none of its words.
    """
    setting: AfterFirstChunk = checked_one_of("after_first_chunk", value, get_args(AfterFirstChunk))
    return setting


def is_outage(error: BaseException) -> bool:
    """Whether it is the model, or the way to it, that failed: not the request, and not a store."""
    # a lost lease is a TimeoutError too, and asking once more would not bring it back
    return isinstance(error, ModelError | ConnectionError | TimeoutError) and not isinstance(error, ChatMemoryError)


class ShownMessages:
    """How many messages of a stream count, to be taken back when their attempt fails.

    Attributes:
        count: the first one begins with the stream, each other one with a boundary.
    """

    __slots__ = ("count",)

    def __init__(self) -> None:
        self.count = 1

    def add(self, chunk: ChatChunk) -> None:
        """A chunk has left."""
        if chunk.boundary is not None:
            withdrawn = chunk.withdraws if chunk.boundary == "attempt" else 0
            self.count = max(0, self.count - withdrawn) + 1

    def withdrawal(self) -> ChatChunk:
        """The chunk that takes all of them back and begins a message in their place."""
        chunk = ChatChunk(boundary="attempt", withdraws=self.count)
        self.count = 1
        return chunk


async def streamed(
    ask: Callable[[], AsyncGenerator[StreamItem, None]],
    again: Callable[[Exception], Awaitable[None]],
    after_first_chunk: AfterFirstChunk,
) -> AsyncGenerator[StreamItem, None]:
    """The stream of the first attempt that does not fail.

    What a failed attempt has shown stays, and counts as partial, until there is something to put in its place. What an
    attempt tells before it shows something, such as its id and usage, is held back, and is gone when it fails.

    Args:
        ask: begins an attempt.
        again: told why one failed, returns when it is time for the next, or raises the error: there is none.
        after_first_chunk: whether there is another attempt also after something was shown.
    """
    shown, anything = ShownMessages(), False
    while True:
        held, begun = list[StreamItem](), False
        async with aclosing(ask()) as items:
            while True:
                # around the pull alone: what is raised while a reader leaves is never a reason to go on
                try:
                    item = await anext(items)
                except StopAsyncIteration:
                    return
                except Exception as error:
                    if anything and after_first_chunk == "raise":
                        raise
                    await again(error)
                    break
                if not begun:
                    if isinstance(item, ChatChunk) and not item.shows:
                        held.append(item)
                        continue
                    begun = True
                    if anything:
                        yield shown.withdrawal()
                    anything = True
                    for early in held:
                        yield early
                if isinstance(item, ChatChunk):
                    shown.add(item)
                yield item
