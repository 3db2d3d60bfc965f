"""How a chain runs: frames, each a run of hook-only advisors around one source.

The call frame and the stream frame are written for speed. They are the only places where a rule stands twice; the laws in
`advisorchain.testing` hold the two together.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from types import CodeType, FunctionType, MethodType
from typing import Any, TypeAlias

from advisorchain._chain.progress import Progress, transformed
from advisorchain._chain.run import Run, status_of
from advisorchain._chain.sources import AroundSource, ModelSource, Opened, Opening, Source, no_request, rebound
from advisorchain._chain.steps import Step
from advisorchain._chain.unwind import closed, is_noted, note, unwind
from advisorchain._telemetry.log import ChainLog
from advisorchain._warned import warned
from advisorchain.advisor import Outcome, StreamItem, TextTransform
from advisorchain.aggregate import as_chunk, merged_context
from advisorchain.errors import AdvisorContractError, StreamTextWarning
from advisorchain.exchange import ChatChunk, ChatRequest, ChatResponse
from advisorchain.model import ModelFunctions

_Hook: TypeAlias = Callable[..., Any]
_OutwardRow: TypeAlias = tuple[int, _Hook | None, _Hook | None]

__all__ = ["Frame", "build_frames", "note_advisor"]


class Voice:
    """What a chain tells the application beside its results."""

    __slots__ = ("_warned", "log")

    def __init__(self, log: ChainLog | None) -> None:
        self.log = log
        self._warned = False

    def changed_text(self, by: str) -> None:
        """Once a chain: the text of a streamed answer was changed after it had been shown."""
        if not self._warned:
            self._warned = True
            warned(
                f"{by} changed the text of a streamed answer: what was shown is not what the response says; "
                "change text in `transform`",
                StreamTextWarning,
            )

    def short_circuit(self, step: Step) -> None:
        """An advisor answered at once."""
        if self.log is not None:
            self.log.short_circuit(step.name, step.order)


class Frame:
    """Hook-only advisors, outermost first, around a source. One that is `watched` was made to be recorded, for one entry."""

    def __init__(self, steps: Sequence[Step], source: Source, voice: Voice, *, watched: bool = False) -> None:
        self.steps = tuple(steps)
        self.source = source
        self.voice = voice
        self._size = len(self.steps)
        # rows, since unpacking one costs a third of looking its values up
        self._inward = tuple([(place, step.before, step.transform) for place, step in enumerate(self.steps)])
        self._outward = tuple([(place, step.after, step.done) for place, step in enumerate(self.steps)][::-1])
        self.watched = watched
        self.entry: Callable[[ChatRequest], Awaitable[ChatResponse]]
        if not watched:  # it would hold itself
            self.entry = self.call if steps else self._direct()

    def _direct(self) -> Callable[[ChatRequest], Awaitable[ChatResponse]]:
        """A shorter way in where no hook stands and nothing observes the run: a frame costs as much as an advisor itself.

        What a frame would check of an around advisor's response, the frame further out or the chain checks.
        """
        source = self.source
        if isinstance(source, ModelSource):
            return source.entry()
        if not isinstance(source, AroundSource) or source.step.advise_call is None:
            return self.call
        return _given_next(source.step.advise_call, source.inner.entry)

    def _outward_from(self, answered: int) -> tuple[_OutwardRow, ...]:
        """The way out from an advisor that answered at once: its own `after` is skipped, its `done` is not."""
        rows = [row for row in self._outward if row[0] <= answered]
        return tuple((place, None if place == answered else after, done) for place, after, done in rows)

    async def call(self, request: ChatRequest) -> ChatResponse:
        """Inwards through the hooks, ask the source, and outwards."""
        if request.__class__ is not ChatRequest and not isinstance(request, ChatRequest):
            raise no_request(request)
        run = request._run
        frame = self if run is None or run.trace is None else run.trace.observed(self)
        steps, source, outward = frame.steps, frame.source, frame._outward
        passed: list[ChatRequest] | None = None  # what each advisor passed on, once one has changed it
        transforms: dict[int, TextTransform] = {}
        place = -1  # on the way in, the innermost advisor entered; on the way out, the one that is being left
        asking = False  # no hook is running, but what lies beneath
        left = None  # on the way out, the advisor whose `done` has been entered
        entered = request
        changing = False  # an advisor has changed the request (and may have dropped context), or transforms the text
        try:
            for place, before, transform in frame._inward:
                if before is not None:
                    result = before(request)
                    if result is not request:
                        if steps[place].before_async:
                            result = await result
                        if not isinstance(result, ChatRequest):
                            response = steps[place].short_circuit(result)
                            outward = frame._outward_from(place)
                            self.voice.short_circuit(steps[place])
                            break
                        changing = True
                        passed = passed or [request] * frame._size
                        request = result if result._run is run else rebound(result, run)
                        passed[place:] = [request] * (frame._size - place)
                if transform is not None and (made := transform(request)) is not None:
                    transforms[place] = steps[place].checked_transform(made)
                    changing = True
            else:
                asking = True
                response = await source.call(request)
                if response.__class__ is not ChatResponse:
                    response = source.response(response)
                asking = False
            if response.context is not request.context:
                response = merged_context(request.context, response)

            for place, after, done in outward:
                if changing:
                    request = passed[place] if passed is not None else request
                    response = merged_context(request.context, response)
                    if place in transforms:
                        response = transformed(response, steps[place], transforms[place])
                if after is not None:
                    result = after(request, response)
                    if result is not response:
                        if steps[place].after_async:
                            result = await result
                        response = merged_context(response.context, steps[place].changed(result))
                if done is not None:
                    left = place
                    result = done(request, Outcome("ok", response))
                    if steps[place].done_async:
                        result = await result
                    if result is not None:
                        steps[place].finished(result)
            return merged_context(entered.context, response) if changing else response
        except GeneratorExit:  # thrown away unfinished: a coroutine may not await any more
            if run is not None and run.trace is not None:
                run.trace.thrown_away(steps[: place + 1 - (left == place)])
            raise
        except BaseException as error:
            if not asking:
                note(error, steps[place])
            status = status_of(error, "cancelled")
            passed = passed or [request] * frame._size
            await unwind(steps, passed, place - (left == place), status, error, None, run or Run())
            raise

    async def stream(self, request: ChatRequest, opened: Opened) -> AsyncGenerator[StreamItem, None]:
        """As `call`, chunk by chunk: yields chunks, then the response."""
        run = request._run or Run()
        request = request if request._run is run else rebound(request, run)
        frame = self if run.trace is None else run.trace.observed(self)
        steps, source, outward = frame.steps, frame.source, frame._outward
        passed: list[ChatRequest] | None = None
        transforms: dict[int, TextTransform] = {}
        place, asking, left = -1, False, None
        feed: Callable[[str], str] | None = None  # the transform that is at work
        entered, changing = request, False
        opening: Opening | None = None
        answered = False
        response: ChatResponse | None = None
        progress = opened.progress = Progress()
        fold = progress.fold
        try:
            for place, before, transform in frame._inward:
                if before is not None:
                    result = before(request)
                    if result is not request:
                        if steps[place].before_async:
                            result = await result
                        if not isinstance(result, ChatRequest):
                            opening, answered = Opening(_replay(steps[place].short_circuit(result))), True
                            outward = frame._outward_from(place)
                            self.voice.short_circuit(steps[place])
                            break
                        changing = True
                        passed = passed or [request] * frame._size
                        request = result if result._run is run else rebound(result, run)
                        passed[place:] = [request] * (frame._size - place)
                if transform is not None and (made := transform(request)) is not None:
                    transforms[place] = steps[place].checked_transform(made)
                    changing = True
            asking = True
            if transforms:
                progress.arrange(transforms, steps)
            if opening is None:
                opening = source.open(request, run)

            append, feeds, keep = fold.text.append, progress.feeds if transforms else None, progress.keep
            async for item in opening.items:
                if type(item) is ChatChunk and item.plain:  # the short way, for nearly all
                    append(item.text)
                    if feeds is None:
                        yield item
                        continue
                    text, progress.flushed = item.text, False
                    for feed in feeds:
                        text = feed(text)
                    feed = None
                    if text.__class__ is not str:
                        text = progress.checked(text)
                    if text:
                        keep(text)
                        yield item if text is item.text else ChatChunk(text)
                    continue
                if item.__class__ is not ChatChunk:
                    item = item if answered else source.item(item)
                    if isinstance(item, ChatResponse):
                        response = item
                        break
                if item.boundary is not None and feeds and (held := progress.flush()):
                    yield ChatChunk(held)  # before the boundary counts: the reader may leave here
                fold.add(item)
                item = progress.through(item) if feeds else item
                append, keep = fold.text.append, progress.keep
                yield item
            if response is not None:
                await _at_end(source, opening)
            if opening.inner:
                await opening.close_inner()
            answer = response if response is not None and answered else source.settle(fold, response, opening)
            if answer.text and not any(fold.text):  # an answer that was never shown
                fold.add(late := as_chunk(answer))
                yield progress.through(late) if feeds else late
            if feeds and (held := progress.flush()):
                yield ChatChunk(held)
            if response is not None and answer.text != "".join(fold.text):  # what the fold itself made is the same
                self.voice.changed_text(source.name)
            if answer.context is not request.context:
                answer = merged_context(request.context, answer)

            asking = False
            for place, after, done in outward:
                if changing:
                    request = passed[place] if passed is not None else request
                    answer = merged_context(request.context, answer)
                    if place in transforms:
                        answer = progress.carrying(place, answer)
                if after is not None:
                    result = after(request, answer)
                    if result is not answer:
                        if steps[place].after_async:
                            result = await result
                        if steps[place].changed(result).text != answer.text:
                            self.voice.changed_text(f"`after` of advisor `{steps[place].name}`")
                        answer = merged_context(answer.context, result)
                if done is not None:
                    left = place
                    result = done(request, Outcome("ok", answer))
                    if steps[place].done_async:
                        result = await result
                    if result is not None:
                        steps[place].finished(result)
            asking, place = True, -1
            if changing:
                answer = merged_context(entered.context, answer)
            opened.response = answer
            if not opened.outermost:  # the reader of a ChatStream gets chunks only
                yield answer
        except BaseException as raised:
            error = raised if feed is None else progress.blamed(feed, text, raised)
            try:
                if not asking:
                    note(error, steps[place])
                elif progress.failed is not None:
                    note(error, progress.failed)
                elif isinstance(self.source, AroundSource):
                    note_advisor(error, (self.source.step,))
                status = status_of(error, run.leaving)
                failure = await closed(opening, run) if opening is not None else None
                if failure is not None and isinstance(self.source, AroundSource):
                    note_advisor(failure, (self.source.step,))
                passed = passed or [request] * frame._size
                await unwind(steps, passed, place - (left == place), status, error, progress, run, failure)
                if error is not raised:
                    raise error from raised
                raise
            finally:
                del error  # which holds this frame: neither would go before a garbage collection


def _given_next(advise_call: _Hook, inner: _Hook) -> Callable[[ChatRequest], Awaitable[ChatResponse]]:
    """`advise_call` with `next` given.

    A method gets it as the default of its last parameter: a function around it would add a third to the cost of a layer.
    """
    function = getattr(advise_call, "__func__", None)
    if not isinstance(function, FunctionType) or function.__defaults__ or function.__code__.co_argcount != 3:
        return lambda request: advise_call(request, inner)
    given = FunctionType(function.__code__, function.__globals__, function.__name__, (inner,), function.__closure__)
    given.__kwdefaults__ = function.__kwdefaults__
    return MethodType(given, advise_call.__self__)  # type: ignore[attr-defined]


def build_frames(steps: Sequence[Step], model: ModelFunctions, log: ChainLog | None) -> Frame:
    """The outermost frame of a chain of these steps (outermost first) around a model."""
    voice = Voice(log)
    source: Source = ModelSource(model)
    hooks: list[Step] = []
    for step in reversed(steps):
        if step.is_around:
            source = AroundSource(step, Frame(hooks[::-1], source, voice))
            hooks = []
        else:
            hooks.append(step)
    return Frame(hooks[::-1], source, voice)


def note_advisor(error: BaseException, arounds: Sequence[Step]) -> None:
    """Tell in a note in which around advisor an error arose: the innermost one on the traceback, if no frame lies deeper.

    A frame notes the errors of its hooks itself; one beneath an around advisor on the traceback means that the error came
    from there, out of the model.
    """
    if not isinstance(error, Exception) or is_noted(error):
        return
    culprit: Step | None = None
    traceback = error.__traceback__
    while traceback is not None:
        frame, traceback = traceback.tb_frame, traceback.tb_next
        inside = frame.f_code in _FRAME_CODES
        culprit = None if inside else next((step for step in arounds if step.runs(frame)), culprit)
    if culprit is not None:
        note(error, culprit)


# also that of the short way to the model, which is defined inside of a function
_SHORT_WAY = (code for code in ModelSource.entry.__code__.co_consts if isinstance(code, CodeType))
_FRAME_CODES = frozenset({Frame.call.__code__, Frame.stream.__code__, *_SHORT_WAY})


async def _replay(response: ChatResponse) -> AsyncGenerator[StreamItem, None]:
    """A short-circuit as a stream."""
    yield as_chunk(response)
    yield response


async def _at_end(source: Source, opening: Opening) -> None:
    """Let the source run to its end after its response; nothing more may come."""
    async for _ in opening.items:
        raise AdvisorContractError(f"{source.name} went on after its response; the response is the last thing to yield")
