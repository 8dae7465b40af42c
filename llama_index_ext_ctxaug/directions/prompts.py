"""Default prompts of the directions, and the validation and serialization of prompts."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from typing import Any

from llama_index.core.llms import ChatMessage, MessageRole
from llama_index.core.prompts import BasePromptTemplate, ChatPromptTemplate, PromptTemplate

from llama_index_ext_ctxaug.errors import ConfigurationError

_RULES = """\
You read an excerpt of a document and a question. Where does the answer to the question stand?
NONE: in the excerpt itself.
PREVIOUS: in the text before the excerpt. The question asks for something earlier, or for what the excerpt \
refers back to.
NEXT: in the text after the excerpt. The question asks for something later, or for what the excerpt announces.
BOTH: a part of it before and a part of it after the excerpt.
"""

# A small model that has to look for the answer first does not ask for more if the answer is there.
_FORM = """\
First copy from the excerpt, in at most eight words, what answers the question, or write "not stated". \
Then write on a new line exactly one word: NONE, PREVIOUS, NEXT or BOTH."""

_CASE = "Excerpt: {context_str}\nQuestion: {query_str}"
_REPLY = "In the excerpt: {found}\n{verdict}"

_CLINIC = "In 1990 Ada Moss became head of the clinic and had a new wing built."
_MINUTES = "这两条意见写进了会议纪要，会议随后转入下一项议程。"
_BOARD = "Step 4: Sand the board with fine paper for five minutes."
_NOT = "not stated"
_WORKED = (
    (_CLINIC, "Who was head of the clinic before Ada Moss?", _NOT, "PREVIOUS"),
    (_CLINIC, "What did Ada Moss have built?", "a new wing", "NONE"),
    (_CLINIC, "What did Ada Moss do after she left the clinic?", _NOT, "NEXT"),
    (_MINUTES, "写进纪要的是哪两条意见？", _NOT, "PREVIOUS"),
    (_MINUTES, "意见写进了什么文件？", "会议纪要", "NONE"),
    (_MINUTES, "下一项议程讨论了什么？", _NOT, "NEXT"),
    (_BOARD, "For how long is the board sanded?", "five minutes", "NONE"),
    (_BOARD, "What is step 3?", _NOT, "PREVIOUS"),
    (_BOARD, "What is step 5?", _NOT, "NEXT"),
)


def _messages(*turns: tuple[MessageRole, str]) -> ChatPromptTemplate:
    return ChatPromptTemplate([ChatMessage(content=content, role=role) for role, content in turns])


def _worked() -> Iterator[tuple[MessageRole, str]]:
    for excerpt, question, found, verdict in _WORKED:
        yield MessageRole.USER, _CASE.format(context_str=excerpt, query_str=question)
        yield MessageRole.ASSISTANT, _REPLY.format(found=found, verdict=verdict)


DEFAULT_INFER_PROMPT: BasePromptTemplate = _messages(
    (MessageRole.SYSTEM, _RULES + _FORM), *_worked(), (MessageRole.USER, _CASE)
)
"""Asks which side of one excerpt (`context_str`) a question (`query_str`) needs."""

DEFAULT_REFINE_PROMPT: BasePromptTemplate = _messages(
    (MessageRole.SYSTEM, _RULES + "Answer with exactly one word: NONE, PREVIOUS, NEXT or BOTH."),
    (
        MessageRole.USER,
        "The excerpt is long and comes in parts. From the parts so far the answer was: {existing_answer}\n"
        "The part that follows: {context_msg}\nQuestion: {query_str}\n"
        "Keep the answer or give a better one for the whole excerpt, in exactly one word.",
    ),
)
"""Asks again with the following part (`context_msg`) of an excerpt that is too long for one prompt."""

DEFAULT_TOGETHER_PROMPT: BasePromptTemplate = _messages(
    (
        MessageRole.SYSTEM,
        _RULES + "There are several numbered excerpts. Judge each of them by itself. "
        'Answer with a JSON object that gives one word for each number, such as {"1": "NONE", "2": "NEXT"}.',
    ),
    (MessageRole.USER, "{context_str}\n\nQuestion: {query_str}\nJSON:"),
)
"""Asks about all excerpts at once: `context_str` is all of them, numbered from 1."""


def as_template(value: Any, name: str, variables: Collection[str]) -> BasePromptTemplate:
    """Return a template for a prompt, checked for its variables.

    Args:
        value: a string, a list of `{"role": ..., "content": ...}`, or any prompt template.
        name: name of the field, for the error.
        variables: names that must occur in the prompt.

    Raises:
        ConfigurationError: if the value is no prompt, or lacks a variable.
    """
    if isinstance(value, str):
        value = PromptTemplate(value)
    elif isinstance(value, list):
        value = ChatPromptTemplate([ChatMessage(**message) for message in value])
    if not isinstance(value, BasePromptTemplate):
        raise ConfigurationError(f"{name} must be a string or a prompt template, got {value!r}")
    named = {own: asked for asked, own in (value.template_var_mappings or {}).items()}
    known = {named.get(own, own) for own in value.template_vars} | set(value.function_mappings or {})
    missing = [variable for variable in variables if variable not in known]
    if missing:
        raise ConfigurationError(
            f"{name} lacks {', '.join('{' + variable + '}' for variable in missing)}; "
            f"it needs {', '.join('{' + variable + '}' for variable in variables)}"
        )
    return value


def as_text(template: BasePromptTemplate) -> str | list[dict[str, str]]:
    """Return a prompt as plain JSON types: text, or messages for a chat template."""
    if isinstance(template, ChatPromptTemplate):
        return [
            {"role": message.role.value, "content": message.content or ""}
            for message in template.message_templates
        ]
    return template.get_template()
