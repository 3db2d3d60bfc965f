"""Ready patterns of what a redaction is asked for most often; only what a rule can tell from other text."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

__all__ = ["READY_PATTERNS", "ReadyPattern"]


class ReadyPattern(NamedTuple):
    """Regular expressions, the first that fits counts, and what else a match has to be."""

    expressions: tuple[str, ...]
    valid: Callable[[str], bool] | None = None


def _luhn(text: str) -> bool:
    """ISO/IEC 7812-1, annex B: every second digit from the right is doubled, and the sum of all digits ends in 0."""
    digits = [int(letter) for letter in reversed(text) if letter.isdigit()]
    doubled = (digit * 2 - 9 if digit > 4 else digit * 2 for digit in digits[1::2])
    return any(digits) and (sum(digits[::2]) + sum(doubled)) % 10 == 0


def _mod_97(text: str) -> bool:
    """ISO 13616-1: country and check digits go to the end, letters count from 10; the whole divided by 97 leaves 1."""
    bare = text.replace(" ", "")
    return int("".join(str(int(letter, 36)) for letter in bare[4:] + bare[:4])) % 97 == 1


_LOCAL: Final = r"\w.!#$%+^{}~-"  # RFC 5321's, but for what stands around addresses more often than in them: / ? & = ' ` | *
_DOMAIN: Final = r"@(?:[^\W_][\w-]*\.)+[^\W\d_][\w-]*[^\W_]"


def _card(digits: int) -> str:
    """Alone, or parted by single spaces or hyphens. 0 to 9 only, not digits of every script."""
    return rf"(?<![0-9])[0-9](?:[ -]?[0-9]){{{digits - 1}}}(?![0-9])"


def _iban(length: int) -> str:
    """Together, or in groups of four, as it is printed."""
    groups, rest = divmod(length - 4, 4)
    last = rf" ?[A-Z0-9]{{{rest}}}" if rest else ""
    return rf"(?i)(?<![A-Z0-9])[A-Z]{{2}}[0-9]{{2}}(?: ?[A-Z0-9]{{4}}){{{groups}}}{last}(?![A-Z0-9])"


# One expression a length, the longest first: what follows a number (a date, a word) may look like more of it.
READY_PATTERNS: Final = {
    # what hangs together with an address and has an "@" again goes with it: nothing of another one is to be left
    "email": ReadyPattern((rf"(?<![{_LOCAL}])[{_LOCAL}]+{_DOMAIN}(?:[{_LOCAL}]*{_DOMAIN})*",)),
    "card": ReadyPattern(tuple(map(_card, range(19, 12, -1))), _luhn),  # 13 to 19 digits
    "iban": ReadyPattern(tuple(map(_iban, range(34, 14, -1))), _mod_97),  # 15 (Norway) to 34 (the most there may be)
}
