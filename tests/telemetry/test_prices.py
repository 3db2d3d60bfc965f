"""What a model call costs: by a function of one's own, or by the list prices of a package; never guessed."""

from __future__ import annotations

import builtins
import importlib
import sys
from decimal import Decimal
from typing import Any

import pytest

from advisorchain import AdvisorChain, ChatRequest, ChatResponse, Usage
from advisorchain.advisors import ToolCallingAdvisor
from advisorchain.errors import MissingExtraError
from advisorchain.telemetry import PricedCall
from advisorchain.testing import ScriptedModel
from advisorchain.tools import tool

from ..advisors._tool_scripts import asks
from ._spans import MODES, Spans, ask


def cents(call: PricedCall) -> float | None:
    usage = call.usage
    return None if call.model == "unknown" else (usage.input_tokens or 0) / 100 + (usage.output_tokens or 0) / 10


class Selling:
    name, provider, server_address = "m", "openai", "api.example"

    def __init__(self, *usages: Usage | None, model: str = "m-1") -> None:
        self.usages = list(usages)
        self.model = model

    async def call(self, request: ChatRequest) -> ChatResponse:
        return ChatResponse("fine", model=self.model, usage=self.usages.pop(0))


@MODES
async def test_the_cost_is_on_span_chain_and_metric(mode: str) -> None:
    seen: list[PricedCall] = []

    def price(call: PricedCall) -> float | None:
        seen.append(call)
        return cents(call)

    spans = Spans(metrics=True, prices=price)
    await ask(AdvisorChain(Selling(Usage(10, 2)), telemetry=spans.telemetry), mode)
    assert seen == [PricedCall("openai", "m-1", Usage(10, 2), "api.example")]
    assert spans.told("chat m")["advisorchain.cost"] == pytest.approx(0.3)
    assert spans.told("advisor_chain chain")["advisorchain.cost"] == pytest.approx(0.3)
    (point,) = spans.points("advisorchain.cost")
    assert point.value == pytest.approx(0.3)
    assert (point.attributes["gen_ai.request.model"], point.attributes["gen_ai.response.model"]) == ("m", "m-1")


@MODES
@pytest.mark.parametrize("used", [Usage(10, 0), None])  # None: not told, so the sum is not known
async def test_a_turn_with_several_model_calls_costs_their_sum(mode: str, used: Usage | None) -> None:
    @tool
    async def look() -> str:
        """Look."""
        return "seen"

    calling = asks("look").replace(usage=used)
    model = ScriptedModel(calling, ChatResponse("done", usage=Usage(20, 1)), provider="openai")
    spans = Spans(prices=cents)
    await ask(AdvisorChain(model, [ToolCallingAdvisor([look])], telemetry=spans.telemetry), mode)
    costs = [(span.attributes or {}).get("advisorchain.cost") for span in spans.many("chat scripted")]
    assert costs == [None if used is None else pytest.approx(0.1), pytest.approx(0.3)]
    assert spans.told("advisor_chain chain").get("advisorchain.cost") == (None if used is None else pytest.approx(0.4))


@MODES
@pytest.mark.parametrize("model", [Selling(None, None), Selling(Usage(1, 1), Usage(1, 1), model="unknown")])
async def test_what_is_not_known_is_not_guessed(mode: str, model: Any) -> None:
    spans = Spans(metrics=True, prices=cents)
    await ask(AdvisorChain(model, telemetry=spans.telemetry), mode)
    assert "advisorchain.cost" not in str([dict(span.attributes or {}) for span in spans.all()])
    assert spans.points("advisorchain.cost") == []
    model.usages.append(Usage(1, 1) if model.model == "unknown" else None)


# -- the package


@pytest.mark.parametrize(
    ("given", "told"),
    [(Decimal("0.01"), 0.01), ("0.01", 0.01), (1, 1.0), (10**400, None), (float("nan"), None), ("free", None)],
)
@MODES
async def test_a_price_of_another_kind_costs_no_answer(mode: str, given: Any, told: float | None) -> None:
    spans = Spans(metrics=True, prices=lambda call: given)
    assert (await ask(AdvisorChain(Selling(Usage(1, 1)), telemetry=spans.telemetry), mode)).text == "fine"
    assert spans.told("chat m").get("advisorchain.cost") == told


def test_list_prices_by_provider_or_host() -> None:
    from advisorchain.prices import GenaiPrices

    prices = GenaiPrices()
    known = prices(PricedCall("openai", "gpt-4o", Usage(1000, 100)))
    assert known == pytest.approx(1000 * 2.5e-6 + 100 * 10e-6)
    cached = prices(PricedCall("openai", "gpt-4o", Usage(1000, 100, cached_tokens=500), "api.openai.com"))
    assert cached is not None
    assert cached < known
    assert prices(PricedCall("azure.ai.openai", "gpt-4o", Usage(1000, 100))) is not None
    written = prices(PricedCall("anthropic", "claude-sonnet-4-5", Usage(1000, 100, cache_write_tokens=500)))
    plain = prices(PricedCall("anthropic", "claude-sonnet-4-5", Usage(1000, 100)))
    assert written is not None
    assert plain is not None
    assert written > plain


@pytest.mark.parametrize(
    "call",
    [
        PricedCall("openai", "no-such-model", Usage(1, 1)),
        PricedCall("nobody", "gpt-4o", Usage(1, 1)),
        PricedCall("function", "gpt-4o", Usage(1, 1)),
        PricedCall("openai", "gpt-4o", Usage(1, 1), "localhost"),  # a compatible server is not OpenAI
        PricedCall("openai", "gpt-4o", Usage(1, None)),
        PricedCall("openai", "gpt-4o", Usage(None, 1)),
        PricedCall("openai", "gpt-4o", Usage(1, 1, cached_tokens=5)),
    ],
)
def test_the_package_guesses_nothing(call: PricedCall) -> None:
    from advisorchain.prices import GenaiPrices

    assert GenaiPrices()(call) is None


def test_a_gateway_may_be_named_by_hand() -> None:
    from advisorchain.prices import GenaiPrices

    call = PricedCall("our gateway", "gpt-4o", Usage(1000, 100), "gateway.internal")
    assert GenaiPrices()(call) is None
    assert GenaiPrices({"our gateway": "openai"})(call) is not None


def test_without_the_package_the_error_spells_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    real = builtins.__import__

    def without(name: str, *more: Any, **kw: Any) -> Any:
        if name.startswith("genai_prices"):
            raise ImportError(name)
        return real(name, *more, **kw)

    monkeypatch.delitem(sys.modules, "advisorchain.prices", raising=False)
    monkeypatch.setattr(builtins, "__import__", without)
    with pytest.raises(MissingExtraError, match=r"advisorchain\[prices\]"):
        importlib.import_module("advisorchain.prices")
