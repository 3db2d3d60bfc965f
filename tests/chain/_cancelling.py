"""Cancelling a coroutine at any one of its awaits."""

from __future__ import annotations

import types
from collections.abc import Coroutine, Generator
from typing import Any

import anyio


@types.coroutine
def cancelled_at(awaits: int, coroutine: Coroutine[Any, Any, Any], scope: anyio.CancelScope) -> Generator[Any, Any, Any]:
    """Run a coroutine and cancel `scope` at the await of that number."""
    step: Any = coroutine.send
    argument: Any = None
    done = 0
    while True:
        try:
            trap = step(argument)
        except StopIteration as stop:
            return stop.value
        done += 1
        if done == awaits:
            scope.cancel()
        try:
            step, argument = coroutine.send, (yield trap)
        except BaseException as error:
            step, argument = coroutine.throw, error
