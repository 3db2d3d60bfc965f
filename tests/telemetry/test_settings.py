"""`Telemetry`: by arguments, by the environment, for one chain and for all; without an SDK; with broken parts."""

from __future__ import annotations

import subprocess
import sys
import textwrap
from typing import Any

import pytest
from opentelemetry.metrics import NoOpMeterProvider
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.trace import NoOpTracerProvider

from advisorchain import AdvisorChain, BaseAdvisor, ChatClient, ChatRequest, Telemetry, set_telemetry
from advisorchain.errors import ConfigurationError
from advisorchain.telemetry import SHARED

from ._spans import CANARY, MODES, Hooks, Spans, Times, ask, words

CAPTURE = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"


def run(code: str, **environment: str) -> str:
    """What a program prints, run by itself; it may write nothing else."""
    begin = f"import os\nos.environ.update({environment})\n"
    program = begin + textwrap.dedent(code)
    done = subprocess.run([sys.executable, "-W", "error", "-c", program], capture_output=True, text=True)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    return done.stdout.strip()


PROVIDER = """
import anyio
from opentelemetry import metrics, trace
from opentelemetry.sdk.metrics import MeterProvider
from opentelemetry.sdk.metrics.export import InMemoryMetricReader
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from advisorchain import AdvisorChain, BaseAdvisor, Telemetry, set_telemetry

async def model(request):
    return "fine"

exporter = InMemorySpanExporter()
provider = TracerProvider()
provider.add_span_processor(SimpleSpanProcessor(exporter))
chain = AdvisorChain(model, [BaseAdvisor()])
anyio.run(chain.call, "hi")

def names():
    found = [span.name for span in exporter.get_finished_spans()]
    exporter.clear()
    return found

def attributes(name):
    (span,) = [span for span in exporter.get_finished_spans() if span.name == name]
    return span.attributes
"""
ALL = ["chat model", "advisor BaseAdvisor", "advisor_chain chain"]


def test_a_provider_that_is_set_after_the_build_is_seen() -> None:
    told = run(PROVIDER + "trace.set_tracer_provider(provider)\nanyio.run(chain.call, 'hi')\nprint(names())")
    assert told == str(ALL)


def test_a_meter_provider_that_is_set_later_still_is_seen_too() -> None:
    told = run(
        PROVIDER
        + """
trace.set_tracer_provider(provider)
anyio.run(chain.call, "hi")
reader = InMemoryMetricReader()
metrics.set_meter_provider(MeterProvider([reader]))
anyio.run(chain.call, "hi")
scopes = reader.get_metrics_data().resource_metrics[0].scope_metrics
names = [metric.name for scope in scopes for metric in scope.metrics]
print(sorted(name for name in names if name.startswith("advisorchain")))
"""
    )
    own = ["advisorchain.advisor.duration", "advisorchain.advisor.self_duration", "advisorchain.chain.duration"]
    assert told == str(own)


def test_what_is_set_for_all_chains_holds_for_those_that_were_built_before() -> None:
    told = run(
        PROVIDER
        + """
set_telemetry(Telemetry(provider, capture_content="SPAN_ONLY"))
anyio.run(chain.call, "hi")
print("gen_ai.input.messages" in attributes("chat model"), names())
other = Telemetry(provider, agent_name="own")
anyio.run(AdvisorChain(model, telemetry=other).call, "hi")
print(names())
set_telemetry(None)
anyio.run(chain.call, "hi")
print(names())
set_telemetry(Telemetry())
anyio.run(chain.call, "hi")
print(names())
trace.set_tracer_provider(provider)
anyio.run(chain.call, "hi")
print("gen_ai.input.messages" in attributes("chat model"), names())
"""
    )
    assert told.splitlines() == [f"True {ALL}", "['chat model', 'invoke_agent own']", "[]", "[]", f"False {ALL}"]


def test_what_is_set_for_all_holds_for_clients_and_copies_of_chains() -> None:
    spans, client = Spans(), ChatClient(words)
    chain = AdvisorChain(words).with_advisors(Hooks("a"))
    set_telemetry(spans.telemetry)
    try:
        assert client.chain._telemetry is chain._telemetry is SHARED
        assert SHARED.recorder() is spans.telemetry.recorder()
        assert "Telemetry(tracer_provider=TracerProvider)" in repr(SHARED)
    finally:
        set_telemetry(Telemetry())
    assert SHARED.recorder() is None


@pytest.mark.parametrize("given", ["x", 5, SHARED])
def test_only_a_telemetry_is_set_for_all(given: Any) -> None:
    with pytest.raises(ConfigurationError, match="`telemetry`"):
        set_telemetry(given)


@pytest.mark.parametrize(
    ("settings", "word"),
    [
        ({"capture_content": "ALL"}, "capture_content"),
        ({"capture_content": True}, "capture_content"),
        ({"content_limit": -1}, "content_limit"),
        ({"content_limit": True}, "content_limit"),
        ({"openinference": "yes"}, "openinference"),
        ({"model_span": 1}, "model_span"),
        ({"record_exceptions": 0}, "record_exceptions"),
        ({"agent_name": " "}, "agent_name"),
        ({"agent_name": 1}, "agent_name"),
        ({"prices": 1}, "prices"),
    ],
)
def test_what_cannot_work_is_refused(settings: dict[str, Any], word: str) -> None:
    with pytest.raises(ConfigurationError, match=f"`{word}`"):
        Telemetry(**settings)


@pytest.mark.parametrize(
    ("value", "spans_tell", "warns"),
    [("SPAN_ONLY", True, False), ("span_and_event", True, False), ("NO_CONTENT", False, False), ("", False, False),
     ("EVENT_ONLY", False, False), ("true", False, True)],
)  # fmt: skip
async def test_the_standard_variable_says_whether_content_is_told(
    monkeypatch: pytest.MonkeyPatch, value: str, spans_tell: bool, warns: bool
) -> None:
    monkeypatch.setenv(CAPTURE, value)
    spans = Spans()
    asked = AdvisorChain(words, telemetry=spans.telemetry)
    if warns:
        with pytest.warns(UserWarning, match=CAPTURE):
            await asked.call(CANARY)
    await asked.call(CANARY)
    assert (CANARY in spans.text()) is spans_tell


async def test_an_argument_goes_before_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CAPTURE, "SPAN_ONLY")
    monkeypatch.setenv("ADVISORCHAIN_MODEL_SPAN", "false")
    monkeypatch.setenv("ADVISORCHAIN_CONTENT_LIMIT", "3")
    spans = Spans(capture_content="NO_CONTENT", model_span=True)
    await AdvisorChain(words, telemetry=spans.telemetry).call(CANARY)
    assert CANARY[:3] not in spans.text().replace("the-", "") or "input.value" not in spans.text()
    assert spans.told("chat words")


async def test_switches_and_the_limit_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(CAPTURE, "SPAN_ONLY")
    monkeypatch.setenv("ADVISORCHAIN_CONTENT_LIMIT", "4")
    monkeypatch.setenv("ADVISORCHAIN_OPENINFERENCE", "no")
    monkeypatch.setenv("ADVISORCHAIN_MODEL_SPAN", "off")
    monkeypatch.setenv("ADVISORCHAIN_RECORD_EXCEPTIONS", "TRUE")
    spans = Spans()

    class Failing(BaseAdvisor):
        name = "failing"

        def before(self, request: ChatRequest) -> ChatRequest:
            raise LookupError("told")

    with pytest.raises(LookupError):
        await AdvisorChain(words, [Failing()], telemetry=spans.telemetry).call("question")
    assert spans.tree() == ["advisor_chain chain", "  advisor failing"]
    assert "ques… [cut: 4 more characters]" in spans.told("advisor_chain chain")["gen_ai.input.messages"]
    assert "openinference.span.kind" not in spans.told("advisor failing")
    assert [event.name for event in spans.named("advisor failing").events] == ["exception"]


@pytest.mark.parametrize("name", ["ADVISORCHAIN_MODEL_SPAN", "ADVISORCHAIN_CONTENT_LIMIT"])
def test_a_variable_that_says_nothing_is_told_and_passed_over(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "maybe")
    with pytest.warns(UserWarning, match=name):
        recorder = Telemetry(TracerProvider(shutdown_on_exit=False)).recorder()
    assert recorder is not None
    assert (recorder.settings.model_span, recorder.settings.content_limit) == (True, 8000)


def test_its_repr_tells_settings_and_no_secrets() -> None:
    telemetry = Telemetry(TracerProvider(shutdown_on_exit=False), capture_content="SPAN_ONLY", model_span=False)
    assert repr(telemetry) == "Telemetry(tracer_provider=TracerProvider, capture_content=SPAN_ONLY, model_span=False)"
    assert repr(Telemetry()) == "Telemetry()"


@MODES
async def test_a_chain_without_telemetry_makes_no_span(spans: Spans, mode: str) -> None:
    set_telemetry(spans.telemetry)
    try:
        await ask(AdvisorChain(words, [Hooks("a")], telemetry=None), mode)
    finally:
        set_telemetry(Telemetry())
    assert spans.all() == []


@MODES
async def test_providers_that_do_nothing_are_fine(mode: str) -> None:
    telemetry = Telemetry(NoOpTracerProvider(), NoOpMeterProvider(), capture_content="SPAN_ONLY")
    response = await ask(AdvisorChain(words, [Hooks("a"), Times(2)], telemetry=telemetry), mode)
    assert response.text == "one two"


def test_it_works_without_the_sdk() -> None:
    told = run(
        """
import sys
class NoSdk:
    def find_spec(self, name, path=None, target=None):
        if name.startswith("opentelemetry.sdk"):
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, NoSdk())
import anyio
from advisorchain import AdvisorChain, BaseAdvisor, Telemetry, set_telemetry
from opentelemetry import trace

async def model(request):
    yield "fine"

class Hook(BaseAdvisor):
    name = "hook"
    async def before(self, request):
        return request

async def read(chain):
    async with chain.stream("hi") as stream:
        return [chunk.text async for chunk in stream]

set_telemetry(Telemetry(capture_content="SPAN_AND_EVENT"))
for telemetry in (Telemetry(), Telemetry(trace.NoOpTracerProvider()), None):
    chain = AdvisorChain(model, [Hook()], telemetry=telemetry)
    print(anyio.run(chain.call, "hi").text, anyio.run(read, chain))
print(anyio.run(AdvisorChain(model, [Hook()]).call, "hi").text)
print([name for name in sys.modules if name.startswith("opentelemetry.sdk")])
"""
    )
    assert told.splitlines() == ["fine ['fine']"] * 3 + ["fine", "[]"]


def test_where_otel_keeps_its_providers_elsewhere_they_are_found_all_the_same() -> None:
    told = run(
        PROVIDER
        + """
import importlib, structlog
from opentelemetry import metrics as metrics_api
from advisorchain._telemetry import providers
public = providers._wanted_in_public
print(public(), providers._in_public())
trace.set_tracer_provider(provider)
metrics_api.set_meter_provider(MeterProvider([InMemoryMetricReader()]))
found = providers._in_public()
print(public(), [type(each).__name__ for each in found])
"""
    )
    assert told.splitlines() == ["False (None, None, None)", "True ['TracerProvider', 'MeterProvider', 'NoneType']"]


NAMED = """
import anyio
from advisorchain import AdvisorChain
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider

async def model(request):
    return "fine"

chain = AdvisorChain(model)
"""


def test_importing_and_building_leave_it_to_the_application_to_set_its_provider() -> None:
    told = run(
        NAMED + "own = TracerProvider()\ntrace.set_tracer_provider(own)\nprint(trace.get_tracer_provider() is own)",
        OTEL_PYTHON_TRACER_PROVIDER="sdk_tracer_provider",
    )
    assert told == "True"


def test_a_provider_that_the_environment_names_is_made_by_the_first_call() -> None:
    told = run(
        NAMED
        + """
print(type(trace._TRACER_PROVIDER).__name__)
anyio.run(chain.call, "hi")
print(type(trace._TRACER_PROVIDER).__name__, chain._telemetry.recorder() is not None)
""",
        OTEL_PYTHON_TRACER_PROVIDER="sdk_tracer_provider",
    )
    assert told.splitlines() == ["NoneType", "TracerProvider True"]
