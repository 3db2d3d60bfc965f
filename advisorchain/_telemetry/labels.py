"""What is known of a chain's spans and metrics before anybody asks it. Made once for each chain and recorder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from advisorchain import conventions as names
from advisorchain._chain.steps import Step
from advisorchain._telemetry.recorder import linked
from advisorchain._telemetry.settings import Settings
from advisorchain.exchange import ChatRequest
from advisorchain.model import ModelFunctions
from advisorchain.options import NO_OPTIONS, ChatOptions

__all__ = ["AdvisorLabels", "ChainLabels", "model_attributes"]


class AdvisorLabels:
    """Of one advisor: its span's name, and attributes for a call and for a stream."""

    __slots__ = ("attributes", "measured", "name")

    def __init__(self, chain: str, step: Step, length: int, settings: Settings) -> None:
        self.name: Final = f"advisor {step.name}"
        kind = type(step.advisor)
        told: dict[str, Any] = {
            names.KIND: "advisor",
            names.ADVISOR_NAME: step.name,
            names.ADVISOR_TYPE: f"{kind.__module__}.{kind.__qualname__}",
            names.ADVISOR_ORDER: step.order,
            names.ADVISOR_INDEX: step.index,
            names.CHAIN_LENGTH: length,
        }
        if settings.openinference:
            told[names.SPAN_KIND] = _kind_of(step)
        if settings.agent_name is not None:
            told[names.AGENT_NAME] = settings.agent_name
        self.attributes: Final = tuple({**told, names.STREAM: stream} for stream in (False, True))
        measured = {names.CHAIN_NAME: chain, names.ADVISOR_NAME: step.name}
        self.measured: Final = tuple({**measured, names.STREAM: stream} for stream in (False, True))


class ChainLabels:
    """Of a chain, its advisors and its model.

    Attributes:
        name: of the chain's span.
        attributes, measured: of the chain's span and metrics, for a call and for a stream.
        advisors: by index.
        model: the attributes of a model call that are always the same.
        asks: the name of the model that is asked, where a request names no other.
        links: to what the chain goes on with.
    """

    def __init__(self, chain: str, steps: Sequence[Step], model: ModelFunctions, settings: Settings) -> None:
        agent = settings.agent_name
        self.name: Final = f"advisor_chain {chain}" if agent is None else f"{names.INVOKE_AGENT} {agent}"
        told: dict[str, Any] = {
            names.KIND: "chain",
            names.CHAIN_NAME: chain,
            names.CHAIN_LENGTH: len(steps),
            names.CHAIN_ADVISORS: [step.name for step in steps],
            names.CHAIN_ORDERS: [step.order for step in steps],
        }
        if settings.openinference:
            told[names.SPAN_KIND] = "CHAIN" if agent is None else "AGENT"
        if agent is not None:
            told |= {names.OPERATION: names.INVOKE_AGENT, names.AGENT_NAME: agent}
        self.agent: Final = agent
        self.attributes: Final = tuple({**told, names.STREAM: stream} for stream in (False, True))
        self.measured: Final = tuple({names.CHAIN_NAME: chain, names.STREAM: stream} for stream in (False, True))
        self.advisors: Final = tuple(AdvisorLabels(chain, step, len(steps), settings) for step in steps)
        self.model: Final = _model(model, agent)
        self.asks: Final = model.name
        self.links: Final = tuple(link for step in steps for link in linked(getattr(step.advisor, "continues", None)))


def _kind_of(step: Step) -> str:
    """What an advisor says that it is, by `span_kind`, such as "GUARDRAIL"; a part of the chain, when it says nothing."""
    kind = getattr(step.advisor, "span_kind", None)
    return kind if kind in names.SPAN_KINDS else "CHAIN"


def _model(model: ModelFunctions, agent: str | None) -> dict[str, Any]:
    told = {
        names.OPERATION: names.CHAT,
        names.PROVIDER: model.provider,
        names.SERVER_ADDRESS: model.server_address,
        names.SERVER_PORT: model.server_port,
        names.AGENT_NAME: agent,
    }
    return {key: value for key, value in told.items() if value is not None}


def model_attributes(labels: ChainLabels, request: ChatRequest, model: str, *, stream: bool) -> dict[str, Any]:
    """What is known of a model call when it begins."""
    told = {**labels.model, names.REQUEST_MODEL: model}
    if stream:
        told[names.REQUEST_STREAM] = True
    if request.conversation_id is not None:
        told[names.CONVERSATION_ID] = request.conversation_id
    if request.round:
        told[names.ROUND] = request.round
    if request.options is not NO_OPTIONS:
        told |= _options(request.options)
    return told


def _options(options: ChatOptions) -> dict[str, Any]:
    extra = options.extra
    told = {
        names.REQUEST_TEMPERATURE: options.temperature,
        names.REQUEST_TOP_P: options.top_p,
        names.REQUEST_TOP_K: top_k if type(top_k := extra.get("top_k")) is int else None,
        names.REQUEST_MAX_TOKENS: options.max_tokens,
        names.REQUEST_SEED: options.seed,
        names.REQUEST_STOP_SEQUENCES: list(options.stop) or None,
        names.REQUEST_PRESENCE_PENALTY: options.presence_penalty,
        names.REQUEST_FREQUENCY_PENALTY: options.frequency_penalty,
        names.REQUEST_REASONING_LEVEL: level if type(level := extra.get("reasoning_effort")) is str else None,
        names.OUTPUT_TYPE: "json" if options.output is not None else None,
    }
    return {key: value for key, value in told.items() if value is not None}
