"""How far a stream has come: what has entered a frame, and what has left each of its advisors."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from advisorchain._chain.steps import Step
from advisorchain.advisor import TextTransform
from advisorchain.aggregate import Fold, carrying
from advisorchain.errors import AdvisorContractError
from advisorchain.exchange import ChatChunk, ChatResponse
from advisorchain.messages import AssistantMessage

__all__ = ["Progress", "Tap", "transformed"]


class Tap:
    """A place between transforms where the text that passes is recorded, since a hook or the reader may look at it."""

    __slots__ = ("_finished", "pieces", "place", "step")

    def __init__(self, place: int, step: Step) -> None:
        self.place = place
        self.step = step
        self.pieces: list[str] = []
        self._finished: list[str] = []

    def feed(self, text: str) -> str:
        """Record what the transform of `step` gave, and hand it on."""
        text = self.step.checked_text(text)
        if text:
            self.pieces.append(text)
        return text

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

    A plain chunk is passed through `feeds`, one after the other, and `keep`t by the frame itself, which is the shortest way;
    everything else goes `through`.

    Attributes:
        fold: the chunks that came from the source.
        feeds: the transforms, innermost first, and the taps between them.
        flushed: no text has come since the transforms gave what they had held.
        failed: the step whose transform raised.
    """

    __slots__ = ("_line", "_taps", "failed", "feeds", "flushed", "fold")

    def __init__(self) -> None:
        self.fold = Fold()
        self.feeds: tuple[Callable[[str], str], ...] = ()
        self.failed: Step | None = None
        self.flushed = False
        self._line: list[tuple[Step, TextTransform | Tap]] = []
        self._taps: list[Tap] = []

    def arrange(self, transforms: dict[int, TextTransform], steps: Sequence[Step]) -> None:
        """Set up the transforms, keyed by place."""
        places = sorted(transforms, reverse=True)
        for place, outer in zip(places, [*places[1:], -1], strict=True):
            self._line.append((steps[place], transforms[place]))
            looked_at = any(step.after is not None or step.done is not None for step in steps[outer + 1 : place + 1])
            if looked_at or outer < 0:
                self._taps.append(Tap(place, steps[place]))
                self._line.append((steps[place], self._taps[-1]))
        self.feeds = tuple(part.feed for _, part in self._line[:-1])

    @property
    def keep(self) -> Callable[[str], None]:
        """Records a text that has left the outermost transform; another one after each boundary."""
        return self._taps[-1].pieces.append if self._taps else self.fold.text.append

    def checked(self, text: object) -> str:
        """What the outermost transform gave: text."""
        self.failed = self._taps[-1].step
        checked = self.failed.checked_text(text)
        self.failed = None
        return checked

    def blamed(self, feed: Callable[[str], str], text: object, error: BaseException) -> BaseException:
        """Find whose transform raised, and what: one that choked on what is no text had it from the one before it."""
        place = self.feeds.index(feed)
        if isinstance(text, str):
            self.failed = self._line[place][0]
            return error
        self.failed = self._line[place - 1][0]
        try:
            self.failed.checked_text(text)
        except AdvisorContractError as wrong:
            return wrong
        return error

    def flush(self) -> str:
        """A message ends: what the transforms have held, unless they gave it already."""
        if self.flushed:
            return ""
        self.flushed = True
        text = ""
        for step, part in self._line:
            self.failed = step
            text = part.feed(text) if isinstance(part, Tap) else step.flushed(part, text)
        self.failed = None
        return text

    def _feed(self, text: str) -> str:
        self.flushed = False
        for step, part in self._line:
            self.failed = step
            text = step.checked_text(part.feed(text))
        self.failed = None
        return text

    def through(self, chunk: ChatChunk) -> ChatChunk:
        """What leaves for a chunk that is not plain: transforms flush before a finish reason."""
        if chunk.boundary is not None:  # what was held has left already
            self.flushed = False
            for tap in self._taps:
                tap.begin_message(chunk)
        text = self._feed(chunk.text) if chunk.text else ""
        if chunk.finish_reason:
            text += self.flush()
        return chunk if text == chunk.text else chunk.replace(text=text)

    def texts(self, place: int) -> list[str] | None:
        """The text of each message that has left the advisor at `place`; None: no transform lies there or deeper."""
        reached = [tap for tap in self._taps if tap.place >= place]
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
