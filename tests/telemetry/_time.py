"""Time that passes when a test says so: of what is recorded, and of the SDK's spans."""

from __future__ import annotations

import pytest


class Time:
    """In seconds; add such as a float holds exactly, and what is told is exact."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self._now = 1024.0
        monkeypatch.setattr("advisorchain._telemetry.clock.now", lambda: self._now)
        monkeypatch.setattr("opentelemetry.sdk.trace.time_ns", lambda: round(self._now * 1e9))

    def passes(self, seconds: float) -> None:
        self._now += seconds
