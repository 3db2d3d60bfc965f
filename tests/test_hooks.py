"""`@before` and `@after`."""

from __future__ import annotations

from typing import Any

import pytest

from advisorchain import AdvisorChain, BaseAdvisor, ChatRequest, ChatResponse
from advisorchain.errors import AdvisorContractError, ConfigurationError
from advisorchain.hooks import after, before
from advisorchain.testing import ScriptedModel, check_advisor


@before(order=5)
def asked_by(request: ChatRequest) -> ChatRequest:
    return request.with_context(asked_by="ada")


@before
async def asked_late(request: ChatRequest) -> ChatRequest:
    return request.with_context(late=True)


@after(order=-1, name="told")
async def told_by(request: ChatRequest, response: ChatResponse) -> ChatResponse:
    return response.with_context(told=request.conversation_id)


@after
def quiet(request: ChatRequest, response: ChatResponse) -> ChatResponse:
    return response


@pytest.mark.parametrize("hook", [asked_by, asked_late, told_by, quiet])
async def test_a_function_is_an_advisor_that_keeps_the_laws(hook: BaseAdvisor) -> None:
    await check_advisor(lambda: hook)


async def test_functions_are_called_in_call_and_stream() -> None:
    chain = AdvisorChain(ScriptedModel("fine", repeat=True), [asked_by, asked_late, told_by, quiet])
    expected = {"asked_by": "ada", "late": True, "told": "c"}
    assert (await chain.call("hi", conversation_id="c")).context == expected
    async with chain.stream("hi", conversation_id="c") as stream:
        assert "".join([chunk.text async for chunk in stream]) == "fine"
    assert stream.response.context == expected


def test_name_order_type_and_hooks_are_shown() -> None:
    chain = AdvisorChain(ScriptedModel(), [asked_by, asked_late, told_by, quiet])
    assert [(row.name, row.order, row.type, row.hooks) for row in chain.describe()] == [
        ("told", -1, "FunctionAfter", ("after",)),
        ("asked_late", 0, "FunctionBefore", ("before",)),
        ("quiet", 0, "FunctionAfter", ("after",)),
        ("asked_by", 5, "FunctionBefore", ("before",)),
    ]
    assert repr(asked_by) == "<FunctionBefore asked_by@5>"
    assert repr(told_by) == "<FunctionAfter told@-1>"


async def test_before_may_answer_at_once() -> None:
    @before
    def stop(request: ChatRequest) -> ChatRequest | ChatResponse:
        return request.reply("no")

    assert (await AdvisorChain(ScriptedModel(), [stop]).call("hi")).text == "no"


async def test_a_function_that_gives_back_nothing_is_named() -> None:
    @before
    def forgets(request: ChatRequest) -> ChatRequest:
        return None

    with pytest.raises(AdvisorContractError, match="`before` of advisor `forgets` returned None"):
        await AdvisorChain(ScriptedModel("x"), [forgets]).call("hi")


def test_the_function_can_still_be_called() -> None:
    response = ChatResponse("x")
    assert quiet.function(ChatRequest.__new__(ChatRequest), response) is response


@pytest.mark.parametrize("thing", [5, "x", dict])
@pytest.mark.parametrize("decorator", [before, after])
def test_what_is_no_function_is_refused(thing: Any, decorator: Any) -> None:
    with pytest.raises(ConfigurationError, match="a hook is made of a function"):
        decorator(thing)
    with pytest.raises(ConfigurationError, match="a hook is made of a function"):
        decorator(order=1)(thing)
