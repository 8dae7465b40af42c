"""The parameters that postprocessors share: of the output, and of a token budget."""

from __future__ import annotations

from typing import Literal

from llama_index.core.bridge.pydantic import BaseModel, Field

from llama_index_ext_ctxaug.budget.fit import Tokenizer
from llama_index_ext_ctxaug.passages.scores import PassageScore
from llama_index_ext_ctxaug.passages.separators import HOLE_SEPARATOR


class BudgetOptions(BaseModel):
    """The unit of a token budget, and how its tokens are counted."""

    budget_unit: Literal["chunk", "sentence"] = Field(
        default="chunk",
        description='"chunk": whole chunks only; "sentence": the first chunk that does not fit, and one that '
        "alone exceeds the budget, is cut between sentences, rows of tables or lines of code.",
    )
    tokenizer: Tokenizer | None = Field(
        default=None, exclude=True, description="Counts tokens: text to a list; None for LlamaIndex's."
    )


class OutputOptions(BudgetOptions):
    """The parameters of the output, the same for all augmenters."""

    output: Literal["nodes", "passages"] = Field(
        default="nodes",
        description='"nodes": hits and neighbors one by one; "passages": one node for each run of chunks.',
    )
    passage_scope: Literal["run", "document"] = Field(
        default="run",
        description='What one passage holds: a "run" of chunks that touch, or all runs of a "document".',
    )
    passage_score: PassageScore = Field(
        default="best", description="A passage's score: best or mean of its hits, or reciprocal_rank_sum."
    )
    hole_separator: str = Field(
        default=HOLE_SEPARATOR, description="Separator in a passage where text of the document is missing."
    )
    chunk_separator: str | None = Field(
        default=None,
        description="Separator between chunks where neither their offsets nor the document show what is "
        "between; None for a line break, a space or nothing, by script and markup.",
    )
    table_headers: bool = Field(
        default=False,
        description="Put the header of a Markdown table before rows of a passage whose header is not there.",
    )
    mark_hits: tuple[str, str] | None = Field(
        default=None, description="Marks around the text of hits in a passage; None for no marks."
    )
    read_source: bool = Field(
        default=True,
        description="Read the source document, if the docstore has it, and find the chunks in it.",
    )
    max_passage_tokens: int | None = Field(
        default=None,
        gt=0,
        description="Maximum tokens of one passage; a longer run becomes several passages.",
    )
    token_budget: int | None = Field(
        default=None, ge=0, description="Maximum tokens of the final text; None for no limit."
    )
