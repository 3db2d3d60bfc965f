"""The metrics, with the boundaries that the conventions ask for. No order, conversation or text is on one of them."""

from __future__ import annotations

from typing import Any, Final

from advisorchain import conventions as names

__all__ = ["Instruments"]


class Instruments:
    """The instruments of one meter. Each is recorded with the context of its span, so that exemplars lead there."""

    def __init__(self, meter: Any) -> None:
        def histogram(name: str, told: str, bounds: tuple[float, ...] = names.SECONDS, unit: str = "s") -> Any:
            return meter.create_histogram(name, unit, told, explicit_bucket_boundaries_advisory=list(bounds))

        self.chain: Final = histogram(names.CHAIN_DURATION, "Duration of a call or stream of a chain.")
        self.agent: Final = histogram(
            names.INVOKE_AGENT_DURATION, "Duration of a call or stream of an agent.", names.AGENT_SECONDS
        )
        self.inference_calls: Final = histogram(
            names.INVOKE_AGENT_INFERENCE_CALLS, "Model calls of a call or stream.", names.CALLS, "{inference_call}"
        )
        self.tool_calls: Final = histogram(
            names.INVOKE_AGENT_TOOL_CALLS, "Tool calls of a call or stream.", names.CALLS, "{tool_call}"
        )
        self.advisor: Final = histogram(names.ADVISOR_DURATION, "Duration of an entry of an advisor, with all inside it.")
        self.advisor_self: Final = histogram(
            names.ADVISOR_SELF_DURATION, "Time that an advisor itself took of an entry.", names.SELF_SECONDS
        )
        self.model: Final = histogram(names.CLIENT_OPERATION_DURATION, "Duration of a model call.")
        self.first_chunk: Final = histogram(names.CLIENT_TIME_TO_FIRST_CHUNK, "Time from the question to the first chunk.")
        self.next_chunk: Final = histogram(names.CLIENT_TIME_PER_OUTPUT_CHUNK, "Time in which the next chunk was awaited.")
        self.tool: Final = histogram(names.EXECUTE_TOOL_DURATION, "Duration of a tool's run.")
        self.tokens: Final = histogram(
            names.CLIENT_TOKEN_USAGE, "Tokens of a model call, as its provider counted them.", names.TOKENS, "{token}"
        )
        self.cost: Final = meter.create_counter(names.COST, "{USD}", "What the model calls cost whose price is known.")
