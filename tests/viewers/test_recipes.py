"""The README's recipes for the console, any collector, and Prometheus; those of Phoenix and MLflow are with these."""

from __future__ import annotations

from pathlib import Path

import pytest

from advisorchain.testing.otlp import OtlpReceiver

from ._recipes import SPANS, run_recipe
from ._servers import free_port

pytestmark = pytest.mark.slow

MEASURED = """
import os
from urllib.request import urlopen
import anyio
from advisorchain import AdvisorChain, BaseAdvisor

class Polite(BaseAdvisor):
    name = "polite"

async def model(request):
    return "fine"

anyio.run(AdvisorChain(model, [Polite()]).call, "How are you?")
print(urlopen("http://127.0.0.1:" + os.environ["OTEL_EXPORTER_PROMETHEUS_PORT"] + "/metrics", timeout=10).read().decode())
"""


def test_the_console() -> None:
    lines = run_recipe("console").splitlines()
    places = [
        next(at for at, line in enumerate(lines) if name in line) for name in ("memory ", "advisor tools", "execute_tool")
    ]
    assert places == sorted(places)
    assert "-2147483348" in lines[places[1]]
    assert lines[-1].startswith("slowest:")


def test_a_collector() -> None:
    with OtlpReceiver() as receiver:
        run_recipe("collector", OTEL_EXPORTER_OTLP_ENDPOINT=receiver.url)
        assert len(receiver.spans) == SPANS
        assert not receiver.refusals
        assert {span.resource["service.name"] for span in receiver.spans} == {"shop"}


def test_prometheus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    app = tmp_path / "app.py"
    app.write_text(MEASURED, encoding="utf-8")
    page = run_recipe("Prometheus", app=str(app), more={"OTEL_EXPORTER_PROMETHEUS_PORT": str(free_port())})
    assert 'advisorchain_advisor_duration_seconds_bucket{advisorchain_advisor_name="polite"' in page
