"""A small advisor to see in a trace: `advisorchain chat --trace --advisor examples.shout:Shout`."""

from advisorchain import BaseAdvisor, ChatRequest, TextTransform


class Upper:
    def feed(self, text: str) -> str:
        return text.upper()

    def flush(self) -> str:
        return ""


class Shout(BaseAdvisor):
    """Answers in capitals, chunk by chunk."""

    name = "shout"
    order = 0

    def transform(self, request: ChatRequest) -> TextTransform:
        return Upper()
