"""Why is this chain slow? Its spans go to a file, and `advisorchain trace` shows whose time it was.

Run: python examples/slow_chain.py && advisorchain trace spans.jsonl
(needs: pip install "advisorchain[cli,trace]")
"""

from collections.abc import AsyncIterator

import anyio
from opentelemetry import trace
from opentelemetry.exporter.otlp.json.file.trace_exporter import FileSpanExporter
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor

from advisorchain import AdvisorChain, BaseAdvisor, ChatRequest
from advisorchain.advisors import MessageChatMemoryAdvisor
from advisorchain.memory import ChatMemory


class Greeting(BaseAdvisor):
    name, order = "greeting", 10

    def before(self, request: ChatRequest) -> ChatRequest:
        return request.with_context(greeted=True)


class Glossary(BaseAdvisor):
    name, order = "glossary", 20

    async def before(self, request: ChatRequest) -> ChatRequest:
        await anyio.sleep(0.4)  # looks up each word in a dictionary far away
        return request


async def model(request: ChatRequest) -> AsyncIterator[str]:
    for word in ("An ", "ocelot ", "is ", "a ", "cat."):
        await anyio.sleep(0.01)
        yield word


async def main() -> None:
    provider = TracerProvider()
    provider.add_span_processor(BatchSpanProcessor(FileSpanExporter("spans.jsonl")))
    trace.set_tracer_provider(provider)  # the chain finds it

    chain = AdvisorChain(model, [MessageChatMemoryAdvisor(ChatMemory()), Greeting(), Glossary()], name="zoo")
    async with chain.stream("What is an ocelot?", conversation_id="c1") as stream:
        print("".join([chunk.text async for chunk in stream]))
    provider.shutdown()  # writes what waits


if __name__ == "__main__":
    anyio.run(main)
