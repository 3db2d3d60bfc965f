"""Docstrings in Google's, NumPy's and reST's style, as what a model is told (extra `tools`)."""

from __future__ import annotations

import inspect

from advisorchain.errors import MissingExtraError

try:
    from docstring_parser import parse
except ImportError as error:
    raise MissingExtraError('tools need docstring-parser: pip install "advisorchain[tools]"') from error

__all__ = ["described"]


def described(docstring: str | None) -> tuple[str, dict[str, str]]:
    """What a docstring says of the function, and of each of its parameters.

    The sections about results, errors and examples are left out: the model sees the results. One that cannot be parsed
    is told as it is.
    """
    text = inspect.cleandoc(docstring or "")
    try:
        parsed = parse(text)
    except Exception:  # a docstring is any text, and the parser has an IndexError for some
        return text, {}
    arguments = {}
    for parameter in parsed.params:
        for name in parameter.arg_name.split(","):  # NumPy's style describes several in one place
            arguments[name.strip(" *")] = (parameter.description or "").strip()
    return (parsed.description or "").strip(), arguments
