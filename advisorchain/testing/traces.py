"""Whether the spans of a chain are those that its `describe()` promises.

    provider.add_span_processor(SimpleSpanProcessor(exporter := InMemorySpanExporter()))
    await chain.call("Hello")
    assert_trace(exporter.get_finished_spans(), chain)

Spans of other libraries, also between those of two advisors, are passed over.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from advisorchain import conventions as names
from advisorchain._span_data.data import as_span
from advisorchain._span_data.tree import Node, trees
from advisorchain.testing._trace_checks import Row, advisors_of, found_lines, kind_of_span, promised_lines, run_problems

if TYPE_CHECKING:
    from advisorchain.chain import AdvisorChain
    from advisorchain.client import ChatClient

__all__ = ["assert_trace"]

_TOLD: Final = 20
_DRAWN: Final = 3  # trees


def assert_trace(
    spans: Iterable[Any],
    chain: AdvisorChain | ChatClient,
    *,
    outcome: str | None = "ok",
    outcomes: Mapping[str, str | Sequence[str]] | None = None,
    runs: int | None = None,
) -> None:
    """Check every run of a chain that is among these spans against `chain.describe()`.

    Each advisor that was entered has a span with its order and index, within that of the advisor around it; it was entered
    as often as that one asked, in the rounds of its loop; it begins after and ends before it; and the model's spans lie
    within the innermost.

    Args:
        spans: of OpenTelemetry's exporters for tests, or of an OtlpReceiver; at least all of the chain's.
        chain: the one that was asked, found by its name; for a call with `advisors=` or `without=`, the chain with these, or
            without them.
        outcome: how each run ended: "ok", "error", "cancelled" or "closed"; None: anyhow.
        outcomes: how advisors ended, by their names: a word for each entry, in the order in which they began, those of all
            runs; or one word for all of them.
        runs: how many runs there are; None: at least one.

    Raises:
        AssertionError: they are not as they should be; it tells in what, and draws both trees.
    """
    asked: Any = getattr(chain, "chain", chain)  # a client has one
    rows: Sequence[Row] = asked.describe()
    roots = [root for tree in trees(map(as_span, spans)) for root in tree.roots]
    chains, problems = _chains(roots)
    own = [node for node in chains if _name(node) == asked.name]
    if not own:
        others = ", ".join(f"`{_name(node)}`" for node in chains)
        problems.append(f"chain `{asked.name}` has no span; those that have: {others or 'none'}")
    elif runs is not None and len(own) != runs:
        problems.append(f"chain `{asked.name}` ran {len(own)} times, not {runs}")
    wrong = [(node, found) for node in own if (found := run_problems(node, rows, outcome))]
    problems += [problem for _, found in wrong for problem in found]
    problems += _wrong_outcomes(own, outcomes or {})
    if problems:
        raise AssertionError(_told(problems, promised_lines(asked.name, rows), [node for node, _ in wrong] or own or roots))


def _chains(roots: Iterable[Node]) -> tuple[list[Node], list[str]]:
    """The chains' own spans, by the time they began, and what is wrong with those of advisors outside of them."""
    chains: list[Node] = []
    problems = []
    waiting = [(root, False) for root in roots]
    while waiting:
        node, inside = waiting.pop()
        kind = kind_of_span(node)
        if kind == "chain":
            chains.append(node)
        elif kind == "advisor" and not inside and node.span is not None:
            problems.append(f"`{node.span.name}` is in no span of a chain; is its parent among these spans?")
            inside = True  # one line for all that is in it
        waiting += [(child, inside or kind == "chain") for child in node.children]
    return sorted(chains, key=lambda node: node.span.start if node.span is not None else 0), problems


def _name(node: Node) -> Any:
    return None if node.span is None else node.span.attributes.get(names.CHAIN_NAME)


def _wrong_outcomes(runs: Iterable[Node], expected: Mapping[str, str | Sequence[str]]) -> list[str]:
    ended: dict[str, list[str]] = {name: [] for name in expected}
    for run in runs:
        for span in advisors_of(run):
            name = str(span.attributes.get(names.ADVISOR_NAME))
            if name in ended:
                ended[name].append(str(span.attributes.get(names.ADVISOR_OUTCOME)))
    problems = []
    for name, words in expected.items():
        wanted = [words] * max(1, len(ended[name])) if isinstance(words, str) else list(words)
        if ended[name] != wanted:
            problems.append(f"advisor `{name}` ended {_listed(ended[name])}, not {_listed(wanted)}")
    return problems


def _listed(words: Sequence[str]) -> str:
    return ", ".join(words) or "never, since it was not entered"


def _told(problems: Sequence[str], promised: Sequence[str], found: Sequence[Node]) -> str:
    lines = ["the trace is not what `describe()` promises:", *(f"- {problem}" for problem in problems[:_TOLD])]
    if len(problems) > _TOLD:
        lines.append(f"- and {len(problems) - _TOLD} more")
    lines += ["", "promised:", *(f"  {line}" for line in promised), "", "found:"]
    lines += [f"  {line}" for node in found[:_DRAWN] for line in found_lines(node)] or ["  no spans"]
    if len(found) > _DRAWN:
        lines.append(f"  and {len(found) - _DRAWN} more")
    return "\n".join(lines)
