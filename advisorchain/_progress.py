"""How far a stream has come: what has entered a frame, and what has left each of its advisors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisorchain._steps import Step
from advisorchain.advisor import TextTransform
from advisorchain.aggregate import Fold, carrying
from advisorchain.exchange import ChatChunk, ChatResponse
from advisorchain.messages import AssistantMessage

__all__ = ["Progress", "Tap", "transformed"]


class _NoTextError(Exception):
    """The outermost transform of a tap gave something else."""


class Tap:
    """Transforms that follow each other unseen, and a record of the text that leaves the outermost of them."""

    __slots__ = ("_finished", "feeds", "pieces", "place", "steps", "transforms")

    def __init__(self) -> None:
        self.place = -1
        self.steps: list[Step] = []
        self.transforms: list[TextTransform] = []
        self.feeds: list[Callable[[str], str]] = []
        self.pieces: list[str] = []
        self._finished: list[str] = []

    def add(self, place: int, step: Step, transform: TextTransform) -> None:
        """Put a transform around those that are there."""
        self.place = place
        self.steps.append(step)
        self.transforms.append(transform)
        self.feeds.append(transform.feed)

    def texts(self) -> list[str]:
        """What has left, message by message."""
        return [*self._finished, "".join(self.pieces)]

    def begin_message(self, chunk: ChatChunk) -> None:
        """A chunk with a boundary has come."""
        self._finished.append("".join(self.pieces))
        if chunk.boundary == "attempt":
            del self._finished[max(0, len(self._finished) - chunk.withdraws) :]
        self.pieces = []


class Progress:
    """What one entry of a frame has seen.

    Attributes:
        fold: the chunks that came from the source.
        taps: what has left the transforms, innermost first.
        failed: the step whose transform raised.
    """

    __slots__ = ("_flushed", "failed", "fold", "taps")

    def __init__(self) -> None:
        self.fold = Fold()
        self.taps: list[Tap] = []
        self.failed: Step | None = None
        self._flushed = False

    def arrange(self, transforms: dict[int, TextTransform], steps: Sequence[Step]) -> None:
        """Set up the transforms, keyed by place. A tap ends where a hook, or the frame's reader, may look at the text."""
        tap = Tap()
        places = sorted(transforms, reverse=True)
        for place, outer in zip(places, [*places[1:], -1], strict=True):
            tap.add(place, steps[place], transforms[place])
            looked_at = any(step.after is not None or step.done is not None for step in steps[outer + 1 : place + 1])
            if looked_at or outer < 0:
                self.taps.append(tap)
                tap = Tap()

    def feed(self, text: str) -> str:
        """Pass text through all transforms; give back what leaves the outermost."""
        self._flushed = False
        try:
            for tap in self.taps:
                for feed in tap.feeds:
                    text = feed(text)
                if text.__class__ is not str and not isinstance(text, str):
                    raise _NoTextError
                if text:
                    tap.pieces.append(text)
        except BaseException as error:
            place = tap.feeds.index(feed)
            if not isinstance(text, str) and not isinstance(error, _NoTextError):
                place -= 1  # it choked on what the one before it gave
            self.failed = tap.steps[place]
            self.failed.checked_text(text)  # raises, where that was no text
            raise
        return text

    def flush(self) -> str:
        """A message ends: what the transforms have held, unless they gave it already."""
        if self._flushed:
            return ""
        self._flushed = True
        text = ""
        for tap in self.taps:
            for step, transform in zip(tap.steps, tap.transforms, strict=True):
                self.failed = step
                text = step.flushed(transform, text)
            if text:
                tap.pieces.append(text)
        self.failed = None
        return text

    def through(self, chunk: ChatChunk) -> ChatChunk:
        """What leaves for a chunk that is not plain: transforms flush before a finish reason."""
        if chunk.boundary is not None:  # what was held has left already
            self._flushed = False
            for tap in self.taps:
                tap.begin_message(chunk)
        text = self.feed(chunk.text) if chunk.text else ""
        if chunk.finish_reason:
            text += self.flush()
        return chunk if text == chunk.text else chunk.replace(text=text)

    def texts(self, place: int) -> list[str] | None:
        """The text of each message that has left the advisor at `place`; None: no transform lies there or deeper."""
        reached = [tap for tap in self.taps if tap.place >= place]
        return reached[-1].texts() if reached else None

    def carrying(self, place: int, response: ChatResponse) -> ChatResponse:
        """`response` with the text that has left the advisor at `place`."""
        texts = self.texts(place)
        return response if texts is None else carrying(response, texts)

    def partial(self, place: int) -> ChatResponse | None:
        """What has left the advisor at `place` so far."""
        return self.fold.partial(self.texts(place))


def transformed(response: ChatResponse, step: Step, transform: TextTransform) -> ChatResponse:
    """A whole response, its texts fed to a transform message by message, as a stream of it would be."""
    texts = [step.flushed(transform, message.text) for message in response.turn if isinstance(message, AssistantMessage)]
    return carrying(response, texts)
