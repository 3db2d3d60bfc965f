"""Three recorders around a model that pauses, which the tests of leaving a stream share."""

from __future__ import annotations

from typing import Any

from advisorchain.advisor import AroundAdvisor, BaseAdvisor
from advisorchain.chain import AdvisorChain, ChatStream
from advisorchain.exchange import ChatRequest
from advisorchain.testing import Pause, RecordingAdvisor, ScriptedModel, Seen, labels


class Passing(AroundAdvisor):
    name = "x"

    async def around(self, request: ChatRequest, next: Any) -> Any:
        async for item in next(request):
            yield item


class Another(Passing):
    name = "y"


class HoldsLast(BaseAdvisor):
    """Holds the last character back until there is another."""

    name = "hold"

    def transform(self, request: ChatRequest) -> Any:
        return HoldsLastText()


class HoldsLastText:
    held = ""

    def feed(self, text: str) -> str:
        text = self.held + text
        self.held = text[-1:]
        return text[:-1]

    def flush(self) -> str:
        return self.held


class Onion:
    """a, b and c around a model that pauses after two chunks; between b and c, what the test likes."""

    def __init__(self, *between: Any, transform: bool = False) -> None:
        self.log: list[Seen] = []
        self.pause = Pause()
        self.model = ScriptedModel(["one ", "two ", self.pause, "three"])
        recorders = [RecordingAdvisor(name, log=self.log) for name in "abc"]
        self.between = between
        self.chain = AdvisorChain(self.model, [*recorders[:2], *between, recorders[2]])

    def check(self, status: str, text: str = "one two ") -> None:
        assert labels(self.log, "done") == [f"{name}.done {status}" for name in "cba"]
        assert labels(self.log, "flush", "after") == []
        assert (self.model.opened, self.model.closed) == (1, 1)
        for seen in self.log:
            if seen.outcome is not None:
                assert seen.outcome.error is None
                assert seen.outcome.response.message.partial
                expected = "one two " if seen.advisor == "c" else text
                assert seen.outcome.response.text == expected


class Timed:
    """A chain whose streams have a time limit."""

    def __init__(self, chain: AdvisorChain) -> None:
        self.chain = chain

    def stream(self, prompt: str) -> ChatStream:
        return self.chain.stream(prompt, timeout=1000)


async def read(stream: ChatStream, chunks: int = 2) -> list[str]:
    iterator = aiter(stream)
    return [(await anext(iterator)).text for _ in range(chunks)]
