"""`advisorchain show`: the order of a chain, as a table, as a picture, as data; and what may be wrong with it."""

from __future__ import annotations

import json
import sys
import warnings
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import anyio
from rich.console import Console

from advisorchain.chain import AdvisorChain
from advisorchain.cli.named_parts import open_chain, users_code
from advisorchain.cli.text import plain, tell
from advisorchain.errors import AdvisorChainError, AdvisorOrderWarning, ConfigurationError, kind_of
from advisorchain.explain import Explanation
from advisorchain.lint import Finding, rules

__all__ = ["ShowSetting", "show"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ShowSetting:
    """What the command line of `advisorchain show` says. Without `mermaid`, `json`, `svg` and `lint`: the table."""

    chain: str
    stream: bool = True
    mermaid: bool = False
    json: bool = False
    svg: str | None = None
    lint: bool = False
    ignore: tuple[str, ...] = ()


def show(setting: ShowSetting) -> int:
    """Show it; the exit status: 1 when rules were asked for, and found something.

    Raises:
        AdvisorChainError: there is no such chain, or a file cannot be written.
    """
    with warnings.catch_warnings(), redirect_stdout(sys.stderr):  # what their code prints is no part of what is shown
        warnings.simplefilter("ignore", AdvisorOrderWarning)  # told here
        explanation, found = anyio.run(_looked_at, setting)
    if setting.svg is not None:
        _write(setting.svg, explanation.svg(stream=setting.stream))
    if setting.json:
        lint = {"lint": [asdict(finding) for finding in found]} if setting.lint else {}
        print(json.dumps({**explanation.to_dict(), **lint}, indent=2))
    elif setting.mermaid:
        print(plain(explanation.mermaid(stream=setting.stream)), end="")
    elif setting.lint:
        _print_findings(found)
    elif setting.svg is None:
        _print_table(explanation)
        if found:
            tell(f"{len(found)} found to look at: advisorchain show {setting.chain} --lint")
    return 1 if setting.lint and found else 0


async def _looked_at(setting: ShowSetting) -> tuple[Explanation, tuple[Finding, ...]]:
    async with open_chain("CHAIN", setting.chain) as given:
        chain = _chain_of(given, setting.chain)
        return chain.explain(), chain.lint(setting.ignore)


def _chain_of(given: Any, place: str) -> AdvisorChain:
    with users_code(f"`CHAIN` `{place}` has no chain"):
        chain = getattr(given, "chain", given)  # of a client
    if isinstance(chain, AdvisorChain):
        return chain
    raise ConfigurationError(f"`CHAIN` is `{place}`, which is {kind_of(given)}; give an AdvisorChain or a ChatClient")


def _print_table(explanation: Explanation) -> None:
    if sys.stdout.isatty():
        Console().print(explanation)
    else:
        print(plain(str(explanation)))


def _print_findings(found: Sequence[Finding]) -> None:
    for finding in found:
        print(plain(f"{finding.level} {finding}").replace("\n", " "))
    if not found:
        tell(f"{len(rules())} rules have found nothing")


def _write(file: str, picture: str) -> None:
    try:
        Path(file).write_text(picture, encoding="utf-8")
    except OSError as error:
        raise AdvisorChainError(f"`{file}` cannot be written: {error.strerror}; give another --svg") from error
