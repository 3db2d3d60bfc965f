"""Time that passes when a test says so, in place of what a module has imported from anyio and `time`."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from types import ModuleType

import anyio
import pytest
from anyio.lowlevel import checkpoint


class Clock:
    """`put(module)` replaces those of its names that tell, or wait for, time."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 1000.0
        self.slept: list[float] = []
        self._monkeypatch = monkeypatch
        self._sleeping: list[tuple[float, anyio.Event]] = []
        self._limits: list[tuple[float, anyio.CancelScope]] = []

    def put(self, *modules: ModuleType) -> None:
        for module in modules:
            for name in ("monotonic", "current_time", "sleep", "move_on_after"):
                if hasattr(module, name):
                    self._monkeypatch.setattr(module, name, getattr(self, name))

    def monotonic(self) -> float:
        return self.now

    current_time = monotonic

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        entry = (self.now + seconds, anyio.Event())
        self._sleeping.append(entry)
        try:
            await entry[1].wait()
        finally:
            if entry in self._sleeping:
                self._sleeping.remove(entry)

    @contextmanager
    def move_on_after(self, delay: float | None) -> Iterator[anyio.CancelScope]:
        with anyio.CancelScope() as scope:
            entry = (self.now + (float("inf") if delay is None else delay), scope)
            self._limits.append(entry)
            try:
                self.advance(0)
                yield scope
            finally:
                self._limits.remove(entry)

    def advance(self, seconds: float) -> None:
        self.now += seconds
        for until, scope in self._limits:
            if until <= self.now:
                scope.cancel()
        for entry in [entry for entry in self._sleeping if entry[0] <= self.now]:
            self._sleeping.remove(entry)
            entry[1].set()

    async def pass_while(self, seconds: float, step: float = 1.0) -> None:
        """Advance in steps, letting the tasks run in between."""
        for _ in range(round(seconds / step)):
            await settle()
            self.advance(step)
        await settle()


class Hasty(Clock):
    """Every sleep is over at once, and the time has passed."""

    async def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        await checkpoint()
        self.advance(seconds)


async def settle() -> None:
    """Let every task go on until all of them wait."""
    for _ in range(20):
        await checkpoint()
