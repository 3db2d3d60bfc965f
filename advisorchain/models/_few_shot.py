"""A chat template that lets a very small model answer from what was said before.

SmolLM2-135M, asked in its own chat format, hardly ever finds a name that it was told one message earlier. Asked for the
next line of a written dialogue, after a few examples, it nearly always does. What the examples tell must not leak into
an answer, so the text says where another user begins.
"""

from __future__ import annotations

from typing import Final

__all__ = ["FEW_SHOT_STOP", "FEW_SHOT_TEMPLATE"]

FEW_SHOT_STOP: Final = "\n"  # an answer is one line of the dialogue

_EXAMPLES: Final = (
    ("My name is Eve and I live in Oslo.", "Nice to meet you, Eve! Oslo is a beautiful city."),
    ("What is my name?", "Your name is Eve."),
    ("My cat is called Tom.", "Nice to meet you and Tom!"),
    ("What is my cat called?", "Your cat is called Tom."),
    ("Write a poem about rain.", "Rain falls softly on the roof, and the garden drinks it like a song."),
    ("Who are you?", "I am your assistant."),
    ("What is the capital of Italy?", "The capital of Italy is Rome."),
)

_OPENING: Final = (
    "The following is a chat of a user with a helpful assistant, who answers shortly and remembers what the user said.\n\n"
    + "".join(f"User: {question}\nAssistant: {answer}\n" for question, answer in _EXAMPLES)
    + "\nThe following is a chat of another user with the assistant.\n\n"
)


def _literal(text: str) -> str:
    """`text` as a Jinja expression, whatever white space the template's reader trims."""
    quoted = text.replace("\\", "\\\\").replace("'", "\\'").replace("\n", "\\n")
    return "{{ '" + quoted + "' }}"


# Line breaks inside a message would end its line of the dialogue, and could fake another speaker's.
FEW_SHOT_TEMPLATE: Final = (
    _literal(_OPENING)
    + "{% for message in messages %}"
    + "{% set said = message.content | replace('\\n', ' ') %}"
    + "{% if message.role == 'system' %}{{ said + '\\n\\n' }}"
    + "{% elif message.role == 'user' %}{{ 'User: ' + said + '\\n' }}"
    + "{% else %}{{ 'Assistant: ' + said + '\\n' }}{% endif %}"
    + "{% endfor %}"
    + "{% if add_generation_prompt %}{{ 'Assistant:' }}{% endif %}"
)
