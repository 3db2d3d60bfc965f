"""Names under which things are recorded, each once: OpenTelemetry's GenAI conventions, OpenInference's, and our own.

`VERSION` is the state of the GenAI conventions that is followed: https://github.com/open-telemetry/semantic-conventions-genai,
from which also the bucket boundaries come. All `gen_ai.*` names are still called "Development" there, and a few are about
to be renamed; so no schema URL is told yet.
"""

from __future__ import annotations

from typing import Final

VERSION: Final = "1.42.0-dev"
"""Of the GenAI conventions, as of August 2026: the first state outside of the core conventions (whose last is 1.41)."""

# -- spans: what they are

OPERATION: Final = "gen_ai.operation.name"
PROVIDER: Final = "gen_ai.provider.name"
CONVERSATION_ID: Final = "gen_ai.conversation.id"
AGENT_NAME: Final = "gen_ai.agent.name"
OUTPUT_TYPE: Final = "gen_ai.output.type"
SERVER_ADDRESS: Final = "server.address"
SERVER_PORT: Final = "server.port"
ERROR_TYPE: Final = "error.type"
EXCEPTION_TYPE: Final = "exception.type"
EXCEPTION_MESSAGE: Final = "exception.message"
EXCEPTION_STACKTRACE: Final = "exception.stacktrace"

CHAT: Final = "chat"
EXECUTE_TOOL: Final = "execute_tool"
INVOKE_AGENT: Final = "invoke_agent"
SEARCH_MEMORY: Final = "search_memory"
# no span is a `retrieval`: a search for tools is itself a tool, and a search for documents its application's own
CREATE_MEMORY: Final = "create_memory"
UPDATE_MEMORY: Final = "update_memory"

# -- a model call

REQUEST_MODEL: Final = "gen_ai.request.model"
REQUEST_STREAM: Final = "gen_ai.request.stream"
REQUEST_TEMPERATURE: Final = "gen_ai.request.temperature"
REQUEST_TOP_P: Final = "gen_ai.request.top_p"
REQUEST_TOP_K: Final = "gen_ai.request.top_k"
REQUEST_MAX_TOKENS: Final = "gen_ai.request.max_tokens"
REQUEST_SEED: Final = "gen_ai.request.seed"
REQUEST_STOP_SEQUENCES: Final = "gen_ai.request.stop_sequences"
REQUEST_PRESENCE_PENALTY: Final = "gen_ai.request.presence_penalty"
REQUEST_FREQUENCY_PENALTY: Final = "gen_ai.request.frequency_penalty"
REQUEST_REASONING_LEVEL: Final = "gen_ai.request.reasoning.level"

RESPONSE_ID: Final = "gen_ai.response.id"
RESPONSE_MODEL: Final = "gen_ai.response.model"
RESPONSE_FINISH_REASONS: Final = "gen_ai.response.finish_reasons"
RESPONSE_TIME_TO_FIRST_CHUNK: Final = "gen_ai.response.time_to_first_chunk"

INPUT_TOKENS: Final = "gen_ai.usage.input_tokens"
OUTPUT_TOKENS: Final = "gen_ai.usage.output_tokens"
CACHE_READ_TOKENS: Final = "gen_ai.usage.cache_read.input_tokens"
CACHE_WRITE_TOKENS: Final = "gen_ai.usage.cache_write.input_tokens"
CACHE_CREATION_TOKENS: Final = "gen_ai.usage.cache_creation.input_tokens"
"""The older name of `CACHE_WRITE_TOKENS`; both are told, since Phoenix (20.26) reads this one only."""
REASONING_TOKENS: Final = "gen_ai.usage.reasoning.output_tokens"
TOKEN_TYPE: Final = "gen_ai.token.type"

# -- content: JSON on spans, structured on events

INPUT_MESSAGES: Final = "gen_ai.input.messages"
OUTPUT_MESSAGES: Final = "gen_ai.output.messages"
SYSTEM_INSTRUCTIONS: Final = "gen_ai.system_instructions"
TOOL_DEFINITIONS: Final = "gen_ai.tool.definitions"
INFERENCE_DETAILS: Final = "gen_ai.client.inference.operation.details"
"""The event that tells what was said in a model call."""
OPERATION_EXCEPTION: Final = "gen_ai.client.operation.exception"
"""The event of a model call that failed."""

# -- a tool, a memory

TOOL_NAME: Final = "gen_ai.tool.name"
TOOL_CALL_ID: Final = "gen_ai.tool.call.id"
TOOL_TYPE: Final = "gen_ai.tool.type"
TOOL_DESCRIPTION: Final = "gen_ai.tool.description"
TOOL_ARGUMENTS: Final = "gen_ai.tool.call.arguments"
TOOL_RESULT: Final = "gen_ai.tool.call.result"

MEMORY_STORE_ID: Final = "gen_ai.memory.store.id"
MEMORY_RECORD_COUNT: Final = "gen_ai.memory.record.count"
MEMORY_WAIT_DURATION: Final = "advisorchain.memory.wait_duration"
"""Seconds, before the trip, until it was known who has the lease on the conversation."""

# -- OpenInference, which Phoenix and MLflow read

SPAN_KIND: Final = "openinference.span.kind"
INPUT_VALUE: Final = "input.value"
INPUT_MIME_TYPE: Final = "input.mime_type"
OUTPUT_VALUE: Final = "output.value"
OUTPUT_MIME_TYPE: Final = "output.mime_type"
SPAN_KINDS: Final = (
    "AGENT",
    "CHAIN",
    "EMBEDDING",
    "EVALUATOR",
    "GUARDRAIL",
    "LLM",
    "PROMPT",
    "RERANKER",
    "RETRIEVER",
    "TOOL",
)

# -- our own: no convention has chains of advisors

KIND: Final = "advisorchain.kind"
OUTCOME: Final = "advisorchain.outcome"
STREAM: Final = "advisorchain.stream"
ROUND: Final = "advisorchain.round"
ATTEMPT: Final = "advisorchain.attempt"
COST: Final = "advisorchain.cost"
# chunks, and the time to the first, are told where something looks at them: on spans of chains, models, around advisors and
# advisors with a `transform`. Other hook advisors have none: chunks do not pass through them.
CHUNKS_IN: Final = "advisorchain.stream.chunks_in"
CHUNKS_OUT: Final = "advisorchain.stream.chunks_out"
TIME_TO_FIRST_CHUNK: Final = "advisorchain.stream.time_to_first_chunk"
READER_DURATION: Final = "advisorchain.stream.reader_duration"
"""On a chain's span: seconds in which its reader had a chunk in hand, and nothing beneath was asked for another one."""
AWAITED_DURATION: Final = "advisorchain.stream.awaited_duration"
"""In a stream, on the span of a model call or an around advisor: seconds in which it was awaited, with all inside of it.
The span is longer: it waits for the reader too."""

CHAIN_NAME: Final = "advisorchain.chain.name"
CHAIN_LENGTH: Final = "advisorchain.chain.length"
CHAIN_ADVISORS: Final = "advisorchain.chain.advisors"
CHAIN_ORDERS: Final = "advisorchain.chain.orders"

ADVISOR_NAME: Final = "advisorchain.advisor.name"
ADVISOR_TYPE: Final = "advisorchain.advisor.type"
ADVISOR_ORDER: Final = "advisorchain.advisor.order"
ADVISOR_INDEX: Final = "advisorchain.advisor.index"
ADVISOR_OUTCOME: Final = "advisorchain.advisor.outcome"
ADVISOR_NEXT_CALLS: Final = "advisorchain.advisor.next_calls"
ADVISOR_REQUEST_CHANGED: Final = "advisorchain.advisor.request_changed"
ADVISOR_RESPONSE_CHANGED: Final = "advisorchain.advisor.response_changed"
ADVISOR_SELF_DURATION: Final = "advisorchain.advisor.self_duration"
ADVISOR_ATTEMPT: Final = "advisorchain.advisor.attempt"
ADVISOR_BEFORE_DURATION: Final = "advisorchain.advisor.before_duration"
ADVISOR_TRANSFORM_DURATION: Final = "advisorchain.advisor.transform_duration"
ADVISOR_AFTER_DURATION: Final = "advisorchain.advisor.after_duration"
ADVISOR_DONE_DURATION: Final = "advisorchain.advisor.done_duration"
"""Seconds in each hook of an advisor that has it and came to it; together they are `ADVISOR_SELF_DURATION`."""
ADVISOR_FAILED_HOOK: Final = "advisorchain.advisor.failed_hook"
"""The hook that raised: "before", "transform", "after" or "done"."""
HOOK_DURATIONS: Final = {
    "before": ADVISOR_BEFORE_DURATION,
    "transform": ADVISOR_TRANSFORM_DURATION,
    "after": ADVISOR_AFTER_DURATION,
    "done": ADVISOR_DONE_DURATION,
}

# -- metrics

CHAIN_DURATION: Final = "advisorchain.chain.duration"
ADVISOR_DURATION: Final = "advisorchain.advisor.duration"
CLIENT_OPERATION_DURATION: Final = "gen_ai.client.operation.duration"
CLIENT_TOKEN_USAGE: Final = "gen_ai.client.token.usage"
CLIENT_TIME_TO_FIRST_CHUNK: Final = "gen_ai.client.operation.time_to_first_chunk"
CLIENT_TIME_PER_OUTPUT_CHUNK: Final = "gen_ai.client.operation.time_per_output_chunk"
EXECUTE_TOOL_DURATION: Final = "gen_ai.execute_tool.duration"
INVOKE_AGENT_DURATION: Final = "gen_ai.invoke_agent.duration"
INVOKE_AGENT_INFERENCE_CALLS: Final = "gen_ai.invoke_agent.inference_calls"
INVOKE_AGENT_TOOL_CALLS: Final = "gen_ai.invoke_agent.tool_calls"

SECONDS: Final = tuple(0.01 * 2**power for power in range(14))
AGENT_SECONDS: Final = tuple(0.1 * 2**power for power in range(13))
CALLS: Final = tuple(float(2**power) for power in range(8))
TOKENS: Final = tuple(float(4**power) for power in range(14))
SELF_SECONDS: Final = tuple(0.0001 * 4**power for power in range(10))
"""For the time of an advisor itself, which is most often far below the first of `SECONDS`."""

# -- the environment

CAPTURE_CONTENT_VARIABLE: Final = "OTEL_INSTRUMENTATION_GENAI_CAPTURE_MESSAGE_CONTENT"
CAPTURE_MODES: Final = ("NO_CONTENT", "SPAN_ONLY", "EVENT_ONLY", "SPAN_AND_EVENT")

# -- in OpenTelemetry's context: what keeps others from recording a model call once more

UTIL_GENAI_MODULE: Final = "opentelemetry.util.genai.invocation"
UTIL_GENAI_CLIENT: Final = "opentelemetry.genai.client.inference.context"
OPENLLMETRY_SUPPRESS: Final = "suppress_language_model_instrumentation"
