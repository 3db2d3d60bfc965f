"""The order of a chain to look at: a table, the onion as a picture, and what differs between two chains.

`chain.explain()` gives an Explanation. `print` shows it as a table, and rich (`rich.print`) as one in colour; a notebook
draws the onion; `mermaid()` and `svg()` are for documents, `to_dict()` for programs. All is made of `chain.describe()`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Protocol, overload

from advisorchain._explain.difference import Change, Difference
from advisorchain._explain.mermaid import mermaid
from advisorchain._explain.onion_html import html
from advisorchain._explain.onion_path import Moment, path
from advisorchain._explain.onion_svg import svg
from advisorchain._explain.rows import AdvisorRow, printable
from advisorchain._explain.text_table import text_table
from advisorchain.errors import InvalidInputError, kind_of

if TYPE_CHECKING:
    from rich.console import Group

__all__ = ["Change", "Difference", "Explained", "Explanation", "Moment", "explain"]


class Explained(Protocol):
    """What can be explained: an AdvisorChain. (Of a client, its `chain`.)"""

    def explain(self) -> Explanation:
        """As an Explanation."""
        ...


@dataclass(frozen=True, slots=True)
class Explanation:
    """A chain's order.

    Attributes:
        chain: its name.
        model: the model's.
        rows: the advisors, outermost first.
    """

    chain: str
    model: str
    rows: tuple[AdvisorRow, ...]

    def path(self, *, stream: bool = True) -> tuple[Moment, ...]:
        """Which hook is run as the how-manieth, in a stream or in a call, when each advisor asks the rest once."""
        return path(self.rows, stream=stream)

    def __str__(self) -> str:
        return f"{self.title}\n{text_table(self.rows)}" if self.rows else self.title

    @property
    def title(self) -> str:
        """One line: the chain, the model, and how many advisors there are."""
        count = (
            f"{len(self.rows)} advisor{'' if len(self.rows) == 1 else 's'}, outermost first" if self.rows else "no advisors"
        )
        return printable(f"chain `{self.chain}` around model `{self.model}`: {count}")

    def __rich__(self) -> Group:
        from advisorchain._explain.rich_table import rich_table  # here: rich itself is who asks

        return rich_table(self.title, self.rows)

    def mermaid(self, *, stream: bool = True) -> str:
        """The onion as a Mermaid flowchart.

        Args:
            stream: as a stream runs; else a call.
        """
        return mermaid(self.model, self.rows, self.path(stream=stream), stream=stream)

    def svg(self, *, stream: bool = True) -> str:
        """The onion as an SVG picture, for light and dark pages.

        Args:
            stream: as a stream runs; else a call.
        """
        return svg(self.chain, self.model, self.rows, self.path(stream=stream), stream=stream)

    def _repr_html_(self) -> str:
        return html(self.svg(), self.rows)

    def to_dict(self) -> dict[str, Any]:
        """All of it as JSON has it: names, rows, and the path of a call and of a stream."""
        paths = {"call": self.path(stream=False), "stream": self.path()}
        rows = [{**asdict(row), "hooks": list(row.hooks), "to_stream": list(row.to_stream)} for row in self.rows]
        told = {mode: [asdict(moment) for moment in moments] for mode, moments in paths.items()}
        return {"chain": self.chain, "model": self.model, "advisors": rows, **told}

    def difference(self, other: Explained | Explanation) -> Difference:
        """What is otherwise in another chain, seen from this one.

        Raises:
            InvalidInputError: `other` is no chain.
        """
        theirs = _explained(other)
        return Difference.between((self.model, self.rows), (theirs.model, theirs.rows))


@overload
def explain(chain: Explained | Explanation) -> Explanation: ...
@overload
def explain(chain: Explained | Explanation, other: Explained | Explanation) -> Difference: ...
def explain(chain: Explained | Explanation, other: Explained | Explanation | None = None) -> Explanation | Difference:
    """A chain's order; or of two chains, what is otherwise in the other one.

    Raises:
        InvalidInputError: something that is no chain.
    """
    explanation = _explained(chain)
    return explanation if other is None else explanation.difference(other)


def _explained(chain: Explained | Explanation) -> Explanation:
    if isinstance(chain, Explanation):
        return chain
    if callable(getattr(chain, "explain", None)):
        return chain.explain()
    raise InvalidInputError(f"{kind_of(chain)} cannot be explained; give an AdvisorChain, of a client its `chain`")
