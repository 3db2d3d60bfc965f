"""What model calls cost, by the prices that the package `genai-prices` comes with (extra `prices`). Nothing is fetched.

    Telemetry(prices=GenaiPrices())

They are list prices of the day of that package's release, without a customer's discounts.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from advisorchain.errors import MissingExtraError
from advisorchain.telemetry import PricedCall

try:
    import genai_prices
    from genai_prices import Usage
except ImportError as error:
    raise MissingExtraError('prices of model calls need a package: pip install "advisorchain[prices]"') from error

__all__ = ["GenaiPrices"]

# what the GenAI conventions call a provider, and what this package does
_PROVIDERS: Final = {
    "aws.bedrock": "aws",
    "azure.ai.inference": "azure",
    "azure.ai.openai": "azure",
    "gcp.gemini": "google",
    "gcp.gen_ai": "google",
    "gcp.vertex_ai": "google",
    "mistral_ai": "mistral",
    "x_ai": "x-ai",
}


class GenaiPrices:
    """The price of a call: by the host that was asked, where the model tells it, else by its provider's name.

    A model or host that the package does not know has no price, nor has a call of which a number of tokens is missing.

    Args:
        providers: your own names of providers (`provider=` of a model), and what the package calls them, for hosts that it
            does not know, such as a gateway's.
    """

    def __init__(self, providers: Mapping[str, str] | None = None) -> None:
        self._own = dict(providers or {})

    def __repr__(self) -> str:
        return f"GenaiPrices({self._own or ''})"

    def __call__(self, call: PricedCall) -> float | None:
        """US dollars; None where that is not known."""
        if call.usage.input_tokens is None or call.usage.output_tokens is None:
            return None
        try:
            price = genai_prices.calc_price(_usage(call), call.model, **self._seller(call))
        except (LookupError, ValueError):  # not known; numbers that contradict each other
            return None
        return float(price.total_price)

    def _seller(self, call: PricedCall) -> dict[str, Any]:
        if (own := self._own.get(call.provider)) is not None:
            return {"provider_id": own}
        if call.server is not None:
            return {"provider_api_url": f"https://{call.server}"}
        return {"provider_id": _PROVIDERS.get(call.provider, call.provider)}


def _usage(call: PricedCall) -> Usage:
    told = {
        "input_tokens": call.usage.input_tokens,
        "output_tokens": call.usage.output_tokens,
        "cache_read_tokens": call.usage.cached_tokens,
        "cache_write_tokens": call.usage.cache_write_tokens,
    }
    return Usage(**{name: count for name, count in told.items() if count is not None})
