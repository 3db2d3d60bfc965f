"""Spans in memory; and OpenTelemetry logs nothing, whatever a test does."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from ._spans import Spans
from ._time import Time


@pytest.fixture
def spans() -> Spans:
    return Spans()


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    return Time(monkeypatch)


@pytest.fixture(autouse=True)
def _no_context_errors(caplog: pytest.LogCaptureFixture) -> Iterator[None]:
    caplog.set_level(logging.DEBUG, "opentelemetry")
    yield
    assert [record for record in caplog.get_records("call") if record.name.startswith("opentelemetry")] == []
