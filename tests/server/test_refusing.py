"""What is refused, how it is told, and that nothing of content, paths or keys is told with it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest
from starlette.exceptions import HTTPException

from advisorchain import (
    AdvisorChain,
    BaseAdvisor,
    ChatChunk,
    ChatRequest,
    ChatResponse,
    Outcome,
    PromptTemplate,
    ToolCallChunk,
    Usage,
)
from advisorchain.advisors import RetryAdvisor, ToolCallingAdvisor
from advisorchain.client import ChatClient
from advisorchain.errors import (
    AdvisorChainError,
    AdvisorContractError,
    CallTimeoutError,
    ConfigurationError,
    ContextLengthError,
    ConversationBusyError,
    ConversationConflictError,
    ConversationIdError,
    InvalidInputError,
    LeaseLostError,
    LimitExceededError,
    MessageError,
    ModelError,
    ModelResponseError,
    ModelTimeoutError,
    OutputValidationError,
    StorageError,
    ToolArgumentsError,
)
from advisorchain.server import _refusals, create_app, serve
from advisorchain.testing import ScriptedModel

from ._serving import CLIENT_LETS_GO, HI, Shared, served

pytestmark = pytest.mark.filterwarnings(CLIENT_LETS_GO)

SECRET = "/srv/secret sk-key what was said"
JSON = {"Content-Type": "application/json"}


async def echo(request: ChatRequest) -> str:
    return request.messages[-1].text


@pytest.fixture(scope="module")
def shared() -> Iterator[Shared]:
    with Shared() as server:
        yield server


@pytest.fixture(scope="module")
def locked() -> Iterator[Shared]:
    with Shared(api_key="right") as server:
        yield server


# the key


@pytest.mark.parametrize("key", ["wr0ng", "righ", "rightt", "ünï"])
def test_a_wrong_key_is_refused_and_never_logged(locked: Shared, key: str, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)
    model = ScriptedModel("a")
    locked.behind(model)
    sent = [(b"content-type", b"application/json"), (b"authorization", b"Bearer " + key.encode())]
    answer = locked.http.post("/chat/completions", content=json.dumps({"messages": HI}), headers=sent)
    assert (answer.status_code, answer.json()["error"]["code"]) == (401, "invalid_api_key")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert key not in answer.text
    if key.isascii():
        with pytest.raises(openai.AuthenticationError):
            locked.openai.with_options(api_key=key).chat.completions.create(model="demo", messages=HI)
    right = locked.openai.with_options(api_key="right")
    assert right.chat.completions.create(model="demo", messages=HI).choices[0].message.content == "a"
    assert len(model.requests) == 1
    ours = [
        record.getMessage() for record in caplog.records if not record.name.startswith(("httpx2", "httpcore2", "openai"))
    ]
    assert not [line for line in ours if "right" in line or key in line]


@pytest.mark.parametrize("sent", [{}, {"Authorization": "right"}, {"Authorization": "Basic right"}, {"Authorization": ""}])
def test_no_key_is_refused_on_every_path_but_healthz(locked: Shared, sent: dict[str, str]) -> None:
    for path in ("models", "chat/completions", "nothing"):
        assert locked.http.get(f"/{path}", headers=sent).status_code == 401
    assert locked.http.get(f"{locked.root}/healthz", headers=sent).status_code == 200


@pytest.mark.parametrize(
    ("key", "sent"),
    [
        ("ключ", "ключ"),
        ("voilà", "voilà"),  # whose last byte is a no-break space, read as Latin-1
        ("two words", "two words"),
        ("from a file\n", "from a file"),
        ("\r\n k \t", "k "),
    ],
)
async def test_a_key_of_other_letters_or_with_blanks_around_works(key: str, sent: str) -> None:
    app = create_app(AdvisorChain(echo), api_key=key)
    async with httpx2.AsyncClient(transport=httpx2.ASGITransport(app), base_url="http://localhost/v1") as client:
        right = [(b"authorization", f"bearer {sent}".encode())]
        assert (await client.get("/models", headers=right)).status_code == 200


async def test_without_a_key_only_loopback_can_be_bound_and_asked_for(shared: Shared) -> None:
    for host in ("0.0.0.0", "192.168.1.7", "example.org", ""):
        with pytest.raises(ConfigurationError, match="give `api_key`"):
            await serve(AdvisorChain(echo), host=host)
    for host, status in (("localhost:80", 200), ("[::1]:9", 200), ("127.0.0.1", 200), ("evil.example:80", 403)):
        assert shared.http.get("/models", headers={"Host": host}).status_code == status


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        *(({"grace": value}, "`grace`") for value in (float("inf"), float("nan"), -1, "5", None, True)),
        *(({"port": value}, "`port`") for value in (-1, 65536, "80", True, None)),
        ({"host": None}, "`host` is None"),
        ({"host": "a" * 70}, "cannot be listened on"),
        ({"max_body": None}, "`max_body` is None"),
    ],
)
async def test_what_serve_cannot_work_with_is_refused_before_it_listens(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named):
        await serve(AdvisorChain(echo), **{"port": 0, "api_key": "k", **settings})


# the body


def padded(size: int) -> bytes:
    body = json.dumps({"messages": HI}).encode()
    return body + b" " * (size - len(body))


def test_an_oversized_body_is_refused_declared_or_chunked() -> None:
    def pieces(size: int) -> Iterator[bytes]:
        whole = padded(size)
        yield from (whole[at : at + 1000] for at in range(0, size, 1000))

    model = ScriptedModel("a", "b")
    with served(AdvisorChain(model), max_body=5000) as server:
        url = f"{server.url}/chat/completions"
        for content in (padded(5001), pieces(5001), padded(5_000_000), pieces(5_000_000)):
            answer = httpx2.post(url, content=content, headers=JSON)
            assert (answer.status_code, answer.json()["error"]["code"]) == (413, "body_too_large")
        for content in (padded(5000), pieces(5000)):
            assert httpx2.post(url, content=content, headers=JSON).status_code == 200
        with server.sync_client() as client, pytest.raises(openai.APIStatusError) as caught:
            client.chat.completions.create(model="demo", messages=[{"role": "user", "content": "a" * 1_000_000}])
        assert caught.value.status_code == 413
    assert len(model.requests) == 2


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"{", b"\xff", b"[]", b'"a"', b"null", b'{"messages": "a"}', b'{"messages": []}', b'{"messages": [1]}'),
        *(b'{"messages": [{"role": "user", "content": NaN}]}', b"[" * 100_000, b'{"a": ' * 5000 + b"1" + b"}" * 5000),
        *(b'{"messages": [{"role": "nobody", "content": "secret"}]}', b'{"messages": [{"role": "user", "content": 7}]}'),
        b'{"messages": [{"role": "user", "content": "\\ud800"}]}',
    ],
)
def test_what_is_no_request_is_a_400_before_the_chain_is_asked(shared: Shared, body: bytes) -> None:
    model = ScriptedModel()
    answer = shared.behind(model).post(body)
    assert (answer.status_code, answer.json()["error"]["type"]) == (400, "invalid_request_error")
    assert "secret" not in answer.text
    assert not model.requests


@pytest.mark.parametrize("unit", [b"{},", b"[[[]]],", b"1,"])
def test_a_body_of_very_many_values_is_refused_before_it_is_read(shared: Shared, unit: bytes) -> None:
    model = ScriptedModel()
    bomb = b'{"messages": [' + unit * (1_200_000 // len(unit)) + b"1]}"
    answer = shared.behind(model).post(bomb)
    assert (answer.status_code, "300000 values" in answer.text) == (413, True)
    assert not model.requests


def test_long_texts_of_prose_and_code_are_no_such_body(shared: Shared) -> None:
    prose = "Well, said the cat, that depends. " * 100_000
    code = Path(__file__).read_text() * 50
    said = [{"role": "user", "content": prose}, {"role": "user", "content": code}]
    assert shared.behind(echo).post({"messages": said}).json()["choices"][0]["message"]["content"] == code


def test_a_form_from_another_sites_page_is_refused(shared: Shared) -> None:
    answer = shared.behind(echo).http.post("/chat/completions", content=padded(100), headers={"Content-Type": "text/plain"})
    assert (answer.status_code, answer.json()["error"]["code"]) == (415, "unsupported_media_type")


def given(**fields: Any) -> dict[str, Any]:
    return fields


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        (given(n=2), "`n`"),
        (given(logprobs=True), "`logprobs`"),
        (given(logit_bias={"1": 2}), "`logit_bias`"),
        (given(modalities=["text", "audio"]), "`modalities`"),
        (given(parallel_tool_calls=False), "`parallel_tool_calls`"),
        (given(functions=[]), "`functions`"),
        (given(top_k=3), "`top_k`"),
        ({"some secret words": 1}, "a field of the request"),
        (given(conversation_id="secret"), "name it in `metadata.conversation_id`"),
        ({"messages": None, "message": "secret"}, "`messages` is missing"),
        (given(temperature="hot secret"), "`temperature`"),
        (given(max_tokens=0), "`max_tokens`"),
        (given(seed=1.5), "`seed`"),
        (given(stop=[1]), "`stop"),
        (given(stream="yes"), "`stream`"),
        (given(stream_options=[]), "`stream_options`"),
        (given(stream_options={"include_usage": 1}), "`stream_options.include_usage`"),
        (given(metadata="secret"), "`metadata`"),
        (given(metadata={"conversation_id": 7}), "`conversation_id`"),
        (given(metadata={"conversation_id": " "}), "`conversation_id`"),
        (given(metadata={"conversation_id": "c" * 256}), "`conversation_id`"),
        (given(tools={}), "`tools`"),
        (given(tools=[{"type": "custom"}]), "`tools[0]`"),
        (given(tools=[{"type": "function", "function": {}}]), "`name`"),
        (given(tool_choice="secret"), "`tool_choice`"),
        (given(tool_choice={"type": "allowed_tools"}), "`tool_choice`"),
        (given(tool_choice=[]), "`tool_choice`"),
        (given(response_format={"type": "json_object"}), "`response_format`"),
        (given(response_format={"type": "json_schema"}), "`response_format`"),
        (given(response_format={"type": "json_schema", "json_schema": {"name": "a b", "schema": {}}}), "`name`"),
    ],
)
def test_what_is_not_supported_is_a_clear_400(shared: Shared, fields: dict[str, Any], named: str) -> None:
    answer = shared.behind(ScriptedModel()).post({"messages": HI, **fields})
    assert answer.status_code == 400
    assert named in answer.json()["error"]["message"]
    assert "secret" not in answer.text


def test_an_id_in_the_header_that_is_not_utf_8_is_a_400(shared: Shared) -> None:
    sent = [(b"content-type", b"application/json"), (b"x-conversation-id", b"\xff")]
    answer = shared.behind(ScriptedModel()).http.post("/chat/completions", content=padded(100), headers=sent)
    assert (answer.status_code, "not UTF-8" in answer.text) == (400, True)


def test_another_model_and_another_path_are_404_in_openais_form(shared: Shared) -> None:
    client = shared.behind(echo).openai
    with pytest.raises(openai.NotFoundError, match="the only one is `demo`"):
        client.chat.completions.create(model="gpt-secret", messages=HI)
    with pytest.raises(openai.NotFoundError):
        client.embeddings.create(model="demo", input="a")
    assert shared.http.get("/chat/completions").json()["error"]["code"] == "method_not_allowed"


# errors


FAILURES: list[tuple[Exception, int, str | None, str | None]] = [
    (InvalidInputError(SECRET), 400, None, None),
    (MessageError(SECRET), 400, None, None),
    (ToolArgumentsError(SECRET), 400, None, None),
    (ConversationIdError(SECRET), 400, None, None),
    (ContextLengthError(SECRET), 400, None, None),
    (ConversationConflictError(SECRET, expected=1, found=2), 409, None, "false"),
    (ConversationConflictError(SECRET), 409, None, "false"),
    (ConversationBusyError(SECRET), 409, None, "false"),
    (LeaseLostError(SECRET), 409, None, "false"),
    (LimitExceededError(SECRET, retry_after=2.1), 429, "3", "true"),
    (LimitExceededError(SECRET, retry_after=float("inf")), 429, None, "true"),
    (LimitExceededError(SECRET), 429, None, "false"),
    (ModelError(SECRET, status=429, retryable=True, retry_after=0.2), 429, "1", "true"),
    (HTTPException(418, SECRET), 500, None, "false"),
    (ConfigurationError(SECRET), 500, None, "false"),
    (AdvisorContractError(SECRET), 500, None, "false"),
    (ModelError(SECRET, status=401), 502, None, "false"),
    (ModelError(SECRET, status=500, retryable=True, retry_after=7), 503, "7", "true"),
    (ModelResponseError(SECRET), 502, None, "false"),
    (OutputValidationError(SECRET, response=ChatResponse(SECRET), problem=SECRET), 502, None, "false"),
    (ModelTimeoutError(SECRET), 504, None, "true"),
    (CallTimeoutError(SECRET), 504, None, "false"),
    (StorageError(SECRET), 500, None, "false"),
    (RuntimeError(SECRET), 500, None, "false"),
    (ExceptionGroup(SECRET, [ValueError(SECRET)]), 500, None, "false"),
]


def logged(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.levelname, record.getMessage()) for record in caplog.records if record.name == "advisorchain.server"]


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(("error", "status", "wait", "again"), FAILURES)
def test_errors_have_a_fitting_status_and_tell_no_more(
    shared: Shared,
    error: Exception,
    status: int,
    wait: str | None,
    again: str | None,
    stream: bool,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with pytest.raises(openai.APIStatusError) as caught:
        shared.behind(ScriptedModel([error])).openai.chat.completions.create(model="demo", messages=HI, stream=stream)
    answer = caught.value.response
    assert answer.status_code == status
    assert (answer.headers.get("retry-after"), answer.headers.get("x-should-retry")) == (wait, again)
    assert set(answer.json()["error"]) == {"message", "type", "param", "code"}
    assert f"| {status} | {answer.json()['error']['code']} |" in (_refusals.__doc__ or "")
    assert not [word for word in ("secret", "sk-key", "said", "Traceback", "advisorchain/") if word in answer.text]
    told = logged(caplog)
    level = "ERROR" if status >= 500 else "WARNING"
    assert [one for one, _ in told] == [level] * (status >= 500 or isinstance(error, InvalidInputError))
    assert all(f"answered {status}: {type(error).__name__}" in line for _, line in told)
    if not isinstance(error, AdvisorChainError):
        assert "said" not in told[0][1]


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ConversationBusyError(SECRET), "conversation_busy"),
        (ConversationConflictError(SECRET), "conversation_changed"),  # an id that is taken: about no revision either
        (ConversationConflictError(SECRET, expected=1, found=2), "conversation_changed"),
    ],
)
def test_only_a_conversation_that_is_busy_is_told_to_be(shared: Shared, error: Exception, code: str) -> None:
    answer = shared.behind(ScriptedModel([error])).post({"messages": HI})
    assert (answer.status_code, answer.json()["error"]["code"]) == (409, code)


@pytest.mark.parametrize(
    "chain", [AdvisorChain(echo), ChatClient(echo, system=PromptTemplate("Prices: {internal_price_list}"))]
)
def test_what_is_wrong_inside_the_chain_is_the_operators_to_read(
    shared: Shared, chain: Any, caplog: pytest.LogCaptureFixture
) -> None:
    class Rows(BaseAdvisor):
        name = "rows"

        def before(self, request: ChatRequest) -> ChatRequest:
            raise InvalidInputError(f"row {request.messages[-1].text!r} of /srv/secret/customers.db is bad")

    shared.door.chain = chain if isinstance(chain, ChatClient) else chain.with_advisors(Rows())
    for stream in (False, True):
        answer = shared.post({"messages": HI, "stream": stream})
        assert answer.status_code == 400
        assert not [word for word in ("Hi", "secret", "price") if word in answer.text]
    assert len(logged(caplog)) == 2
    assert all("customers.db" in line or "internal_price_list" in line for _, line in logged(caplog))


def test_notes_of_others_are_not_logged(shared: Shared, caplog: pytest.LogCaptureFixture) -> None:
    class Failing(BaseAdvisor):
        name = "failing"

        def before(self, request: ChatRequest) -> ChatRequest:
            error = RuntimeError(SECRET)
            error.add_note(SECRET)
            error.add_note(f"in advisor `x`, order 1 {SECRET}")
            error.add_note(f"{SECRET} failed too: ValueError")
            error.add_note("in tool `what was said` (call `1`)")  # in the very form of ours
            raise error

    assert shared.behind(echo, Failing()).post({"messages": HI}).status_code == 500
    assert logged(caplog) == [("ERROR", "answered 500: RuntimeError (in advisor `failing`, order 0)")]


def test_our_notes_are_logged_each_on_its_line(shared: Shared, caplog: pytest.LogCaptureFixture) -> None:
    async def broken() -> str:
        """Fails."""
        raise LookupError(SECRET)

    class Late(BaseAdvisor):
        name = "late"

        def done(self, request: ChatRequest, outcome: Outcome) -> None:
            raise KeyError(SECRET)

    rounds = [[ChatChunk(tool_calls=(ToolCallChunk(0, call_id, "broken", "{}"),))] for call_id in ("a", "b\nc")]
    loop = ToolCallingAdvisor([broken], on_error="raise", order=5)
    again = RetryAdvisor(attempts=1, order=6)
    shared.behind(ScriptedModel(*rounds, [ModelError(SECRET, retryable=True)]), Late(), loop, again)
    for _ in range(3):
        assert shared.post({"messages": HI}).status_code >= 500
    told, late = f"in advisor `{loop.name}`, order 5", "`done` of advisor `late` failed too: KeyError"
    assert [line for _, line in logged(caplog)] == [
        f"answered 500: LookupError (in tool `broken` (call `a`); {late}; {told})",
        f"answered 500: LookupError ({late}; {told})",
        f"answered 503: ModelError: {SECRET} (advisor `retry`: attempt 1 was the last; {late})",
    ]


@pytest.mark.parametrize("error", [failure[0] for failure in FAILURES if failure[1] >= 502])
async def test_an_error_in_mid_stream_is_an_event_and_then_the_end(
    shared: Shared, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    model = ScriptedModel(["one ", error], ["one ", error])
    shared.behind(model)
    async with shared.client(http_client=httpx2.AsyncClient(verify=False)) as client:
        stream = await client.chat.completions.create(model="demo", messages=HI, stream=True)
        seen = []
        with pytest.raises(openai.APIError) as caught:
            async for piece in stream:
                seen.append(piece.choices[0].delta.content)
        await stream.close()
    raw = shared.post({"messages": HI, "stream": True})
    assert seen == ["", "one "]
    assert "secret" not in str(caught.value)
    assert raw.text.count("data: ") == 3
    assert "[DONE]" not in raw.text
    assert model.open_streams == 0
    assert all(line.startswith("ended a stream with error 50") for _, line in logged(caplog))


@pytest.mark.parametrize(
    "first", [ChatChunk(usage=Usage(3, 0)), ChatChunk(metadata={"id": "1"}), ChatChunk(""), ChatChunk(reasoning="")]
)
def test_an_error_before_anything_can_be_seen_has_a_status_of_its_own(shared: Shared, first: ChatChunk) -> None:
    shared.behind(ScriptedModel([first, ModelError(SECRET, status=429, retryable=True, retry_after=2)]))
    answer = shared.post({"messages": HI, "stream": True})
    assert (answer.status_code, answer.headers["retry-after"]) == (429, "2")


def test_a_memory_that_is_not_ours_and_needs_an_id_gets_a_clear_400(shared: Shared) -> None:
    class Theirs(BaseAdvisor):
        name = "theirs"

        def before(self, request: ChatRequest) -> ChatRequest:
            if request.conversation_id is None:
                raise ConversationIdError("`conversation_id` is missing; give a text of 1 to 255 characters")
            return request

    with pytest.raises(openai.BadRequestError, match=r"needs a conversation id; name one in the header `X-Conversation-Id`"):
        shared.behind(echo, Theirs()).openai.chat.completions.create(model="demo", messages=HI, stream=True)


# browsers


def test_pages_of_named_origins_may_ask() -> None:
    with served(AdvisorChain(echo), api_key="k", allow_origins=["https://chat.example.org"]) as server:
        asking = {"Access-Control-Request-Method": "POST", "Access-Control-Request-Headers": "authorization, x-stainless-os"}
        for origin, status in (("https://chat.example.org", 200), ("https://other.example.org", 400)):
            answer = httpx2.options(f"{server.url}/chat/completions", headers={"Origin": origin, **asking})
            assert answer.status_code == status
        answer = httpx2.get(f"{server.url}/models", headers={"Origin": "https://chat.example.org"})
        assert (answer.status_code, answer.headers["access-control-allow-origin"]) == (401, "https://chat.example.org")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        (given(api_key=" "), "`api_key` is blank"),
        (given(api_key=b"a"), "`api_key` is a bytes"),
        (given(api_key="a\nb"), "`api_key` has a line end"),
        (given(api_key="\udc80"), "`api_key` has a line end or another control"),
        (given(model_name=" "), "`model_name` is blank"),
        (given(model_name=7), "`model_name` is an int"),
        (given(allow_origins=None), "`allow_origins` is None"),
        (given(allow_origins=[7]), "`allow_origins` is not of texts"),
        (given(max_body=0), "`max_body` is 0"),
        (given(max_streams=True), "`max_streams` is True"),
        (given(allow_origins="*"), "`allow_origins` is a str"),
        (given(allow_origins=["*"]), "give `api_key` too"),
    ],
)
def test_bad_settings_are_refused_when_the_application_is_made(settings: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError, match=named.replace("*", ".")):
        create_app(AdvisorChain(echo), **settings)


@pytest.mark.parametrize("chain", [None, "a", AdvisorChain, echo])
def test_what_is_no_chain_is_refused(chain: Any) -> None:
    with pytest.raises(ConfigurationError, match="give an AdvisorChain"):
        create_app(chain)


def test_serving_needs_no_more_than_call_and_stream() -> None:
    chain = AdvisorChain(echo)

    class Bare:
        call, stream = chain.call, chain.stream

    with served(Bare(), model_name=None) as server, server.sync_client() as client:
        assert client.chat.completions.create(model="chain", messages=HI).choices[0].message.content == "Hi"
