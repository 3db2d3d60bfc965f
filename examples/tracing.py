"""Spans on the console: which advisor ran, in which order, how it ended.

Run: python examples/tracing.py   (needs: pip install opentelemetry-sdk)
"""

from collections.abc import AsyncIterator

import anyio
from opentelemetry import trace
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import ConsoleSpanExporter, SimpleSpanProcessor

from advisorchain import AdvisorChain, BaseAdvisor, ChatRequest
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.memory import ChatMemory


class Polite(BaseAdvisor):
    name = "polite"

    def before(self, request: ChatRequest) -> ChatRequest:
        return request.with_context(polite=True)


async def model(request: ChatRequest) -> AsyncIterator[str]:
    yield "Good "
    yield "evening."


def one_line(span: ReadableSpan) -> str:
    told = span.attributes or {}
    order = told.get("advisorchain.advisor.order", "")
    outcome = told.get("advisorchain.advisor.outcome", told.get("advisorchain.outcome"))
    return f"{span.name:24} order={order!s:12} outcome={outcome}\n"


async def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(SimpleSpanProcessor(ConsoleSpanExporter(formatter=one_line)))
    trace.set_tracer_provider(provider)  # any OpenTelemetry exporter will do; the chain finds the global provider

    chain = AdvisorChain(model, [MessageChatMemoryAdvisor(ChatMemory()), Polite()])
    async with chain.stream("Hello", conversation_id="c1") as stream:
        async for _ in stream:
            pass


if __name__ == "__main__":
    anyio.run(main)
