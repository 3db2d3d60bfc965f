"""Prometheus: metrics on a page of this process, as OpenTelemetry's exporter tells them, and scraped by the real server."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlencode
from urllib.request import urlopen

import anyio
import pytest
from opentelemetry.exporter.prometheus import PrometheusMetricReader
from opentelemetry.sdk.metrics import MeterProvider
from prometheus_client import REGISTRY, start_http_server
from prometheus_client.parser import text_string_to_metric_families

from advisorchain import AdvisorChain, Telemetry, Usage, conventions
from advisorchain.testing import ScriptedModel

from ._scenes import answering, chain
from ._servers import free_port, prometheus

pytestmark = pytest.mark.slow

CONVERSATION: Final = "conversation-that-is-on-no-metric"
SELF: Final = "advisorchain_advisor_self_duration_seconds_bucket"
SLOWEST: Final = f"histogram_quantile(0.95, sum by (le, advisorchain_advisor_name) (rate({SELF}[1m])))"


@dataclass(frozen=True)
class Page:
    """Where the metrics are told, and a chain that is measured.

    Attributes:
        place: host and port.
        asked: the chain.
    """

    place: str
    asked: AdvisorChain

    def ask(self, backend: str = "asyncio") -> None:
        async def once() -> None:
            async with self.asked.stream("How do I get to Porto?", conversation_id=CONVERSATION) as stream:
                async for _ in stream:
                    pass

        anyio.run(once, backend=backend)

    def text(self) -> str:
        with urlopen(f"http://{self.place}/metrics", timeout=10) as answer:
            return str(answer.read().decode())

    def samples(self, family: str) -> list[Any]:
        (found,) = (one for one in text_string_to_metric_families(self.text()) if one.name == family)
        return list(found.samples)


@pytest.fixture(scope="module")
def page() -> Iterator[Page]:
    port = free_port()
    reader = PrometheusMetricReader()
    provider = MeterProvider([reader], shutdown_on_exit=False)
    server, thread = start_http_server(port, "127.0.0.1", REGISTRY)
    model = ScriptedModel(answering("Take the night train.", Usage(12, 5)), name="scripted-1", repeat=True)
    page = Page(f"127.0.0.1:{port}", chain(model, Telemetry(meter_provider=provider)))
    page.ask("asyncio")
    page.ask("trio")
    try:
        yield page
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
        provider.shutdown()


@pytest.mark.parametrize(
    ("family", "bounds"),
    [
        ("advisorchain_chain_duration_seconds", conventions.SECONDS),
        ("advisorchain_advisor_duration_seconds", conventions.SECONDS),
        ("advisorchain_advisor_self_duration_seconds", conventions.SELF_SECONDS),
        ("gen_ai_client_operation_duration_seconds", conventions.SECONDS),
        ("gen_ai_client_operation_time_to_first_chunk_seconds", conventions.SECONDS),
        ("gen_ai_client_operation_time_per_output_chunk_seconds", conventions.SECONDS),
        ("gen_ai_client_token_usage", conventions.TOKENS),
    ],
)
def test_the_boundaries_are_kept(page: Page, family: str, bounds: tuple[float, ...]) -> None:
    told = {float(sample.labels["le"]) for sample in page.samples(family) if sample.name.endswith("_bucket")}
    assert told == {*bounds, float("inf")}


def test_every_advisor_has_its_own_time(page: Page) -> None:
    counts = {
        sample.labels["advisorchain_advisor_name"]: sample.value
        for sample in page.samples("advisorchain_advisor_self_duration_seconds")
        if sample.name.endswith("_count")
    }
    assert set(counts) == {"memory", "guard", "tools", "polite", "retry"}
    assert set(counts.values()) == {counts["memory"]}


def test_no_label_has_a_value_of_its_own_for_each_call(page: Page) -> None:
    text = page.text()
    assert CONVERSATION not in text
    assert "Porto" not in text
    assert "order" not in text
    assert "index" not in text


def test_the_server_scrapes_them(page: Page, tmp_path: Path) -> None:
    with prometheus(tmp_path, page.place) as url:
        _until(url, "advisorchain_chain_duration_seconds_count", lambda value: value >= 2)
        found = {row["metric"]["le"] for row in _query(url, f'{SELF}{{advisorchain_advisor_name="guard"}}')}
        assert {float(bound) for bound in found} == {*conventions.SELF_SECONDS, float("inf")}
        for _ in range(3):
            page.ask()
        _until(url, SLOWEST, lambda value: value > 0)
        names = {row["metric"]["advisorchain_advisor_name"] for row in _query(url, SLOWEST)}
        assert names == {"memory", "guard", "tools", "polite", "retry"}
        (tokens,) = _query(url, 'gen_ai_client_token_usage_sum{gen_ai_token_type="output"}')
        assert float(tokens["value"][1]) % 5 == 0


def _until(url: str, query: str, enough: Any) -> None:
    """Wait until it has scraped that."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        if any(enough(float(row["value"][1])) for row in _query(url, query)):
            return
        time.sleep(0.2)
    raise AssertionError(f"no answer to {query}: {_query(url, query)}")


def _query(url: str, query: str) -> list[Any]:
    with urlopen(f"{url}/api/v1/query?{urlencode({'query': query})}", timeout=10) as answer:
        told = json.load(answer)
    assert told["status"] == "success"
    return list(told["data"]["result"])
