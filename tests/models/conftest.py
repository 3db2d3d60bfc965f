"""A server with a real small model, started once: loading it takes seconds."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from ._servers import ModelServer, small_model_server


@pytest.fixture(scope="session")
def small_model() -> Iterator[ModelServer]:
    with small_model_server() as server:
        yield server
