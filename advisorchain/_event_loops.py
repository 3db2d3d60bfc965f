"""What is asked of an event loop from outside of it, and asyncio and trio answer in different words."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anyio.lowlevel import EventLoopToken

__all__ = ["has_ended", "poster"]


def has_ended(loop: EventLoopToken) -> bool:
    """Whether nothing runs in it any more."""
    native: Any = loop.native_token
    if hasattr(native, "is_closed"):  # asyncio's loop
        return bool(native.is_closed())
    try:
        native.run_sync_soon(_nothing, idempotent=True)  # trio's token, which tells it in no other way
    except RuntimeError:
        return True
    return False


def poster(loop: EventLoopToken) -> Callable[[Callable[[], object]], object]:
    """What has a function called in it, from any thread; RuntimeError when it has ended."""
    native: Any = loop.native_token
    post: Callable[[Callable[[], object]], object] = getattr(native, "call_soon_threadsafe", None) or native.run_sync_soon
    return post


def _nothing() -> None:
    pass
