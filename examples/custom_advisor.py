"""An advisor of your own: it answers greetings itself, and times the rest.

Run: python examples/custom_advisor.py
"""

from time import perf_counter

import anyio

from advisorchain import AdvisorChain, BaseAdvisor, ChatRequest, ChatResponse, Outcome


class Receptionist(BaseAdvisor):
    """Override what you need: before, transform, after, done; each plain or async (but transform, which is plain)."""

    name = "receptionist"
    order = 0  # lower is further out; memory is at CHAT_MEMORY_ORDER, far outside

    async def before(self, request: ChatRequest) -> ChatRequest | ChatResponse:
        if request.messages[-1].text.lower() in ("hi", "hello"):
            return request.reply("Hello! What can I do for you?")  # the rest of the chain is not asked
        # state between our own hooks travels on the request: one advisor object serves all calls at once
        return request.replace(local={**request.local, self.name: perf_counter()})

    def after(self, request: ChatRequest, response: ChatResponse) -> ChatResponse:
        seconds = perf_counter() - request.local[self.name]
        return response.with_context(seconds=round(seconds, 3))

    def done(self, request: ChatRequest, outcome: Outcome) -> None:
        print(f"[{self.name}: {outcome.status}]")  # once, however it ended: ok, error, cancelled or closed


async def model(request: ChatRequest) -> str:
    return f"A model would answer {request.messages[-1].text!r} now."


async def main() -> None:
    chain = AdvisorChain(model, [Receptionist()])
    for question in ("Hello", "What is an advisor?"):
        response = await chain.call(question)
        print(f"{question} -> {response.text} {dict(response.context)}")


if __name__ == "__main__":
    anyio.run(main)
