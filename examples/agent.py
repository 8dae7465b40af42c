"""An agent that searches, reads on where a passage breaks off, and cites what it read.

The texts are topics of the Python language reference that CPython carries. Without an endpoint a script
plays the model, so the example runs anywhere; with one, any model that can call tools does the work:

    python examples/agent.py
    python examples/agent.py --url http://127.0.0.1:8080/v1 --model qwen3 "What does the else of a for do?"

Needs the extra `examples`; `--url` needs the extra `llm`.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import re
from collections.abc import Sequence
from pydoc_data.topics import topics

from llama_index.core import Document
from llama_index.core.agent.workflow import FunctionAgent, ToolCallResult
from llama_index.core.base.llms.types import ChatMessage, ToolCallBlock
from llama_index.core.llms import LLM
from llama_index.core.llms.mock import MockFunctionCallingLLM
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.retrievers.bm25 import BM25Retriever

from llama_index_ext_ctxaug import ReadAroundToolSpec, Reading, cite

QUESTION = "Can the variable of a for loop be used after the loop has ended?"
INSTRUCTIONS = (
    "Answer from the documents alone. Search first. If a passage breaks off before the answer, read on. "
    "Quote the sentence that answers."
)
SCRIPTED_QUERY = "for loop: the iterator is exhausted, the loop terminates"
SCRIPTED_QUOTE = re.compile(r"Names in the target list are not deleted[^,.]*", re.DOTALL)


def make_tools() -> ReadAroundToolSpec:
    """Cut the topics into small chunks, which suit a retriever, and build the tools over them."""
    documents = [Document(text=text, id_=name, metadata={"title": name}) for name, text in topics.items()]
    nodes = SentenceSplitter(chunk_size=80, chunk_overlap=10).get_nodes_from_documents(documents)
    docstore = SimpleDocumentStore()
    docstore.add_documents([*documents, *nodes])
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    retriever = BM25Retriever.from_defaults(nodes=nodes, similarity_top_k=2)
    return ReadAroundToolSpec(docstore=docstore, retriever=retriever)


def scripted_model() -> LLM:
    """Play a model that searches, reads on until it has read enough, and answers with a quotation."""

    def reply(messages: Sequence[ChatMessage], **_: object) -> ChatMessage:
        read = "\n".join(str(message.content) for message in messages if message.role == "tool")
        handles = re.findall(r"^\[passage (\d+) \|", read, re.MULTILINE)
        if not handles:
            call = ToolCallBlock(tool_name="search", tool_kwargs={"query": SCRIPTED_QUERY})
        elif (quote := SCRIPTED_QUOTE.search(read)) or len(handles) > 8:
            answer = f'Yes: "{quote[0]}".' if quote else "I did not find it."
            return ChatMessage(role="assistant", content=answer)
        else:
            call = ToolCallBlock(tool_name="read_after", tool_kwargs={"passage": handles[-1]})
        call.tool_call_id = f"call-{len(messages)}"
        return ChatMessage(role="assistant", blocks=[call])

    return MockFunctionCallingLLM(response_generator=reply)


def real_model(url: str, name: str) -> LLM:
    """Connect to an OpenAI-compatible endpoint."""
    from llama_index.llms.openai_like import OpenAILike

    return OpenAILike(
        model=name, api_base=url, api_key="none", is_chat_model=True, is_function_calling_model=True
    )


async def main(question: str, llm: LLM) -> None:
    """Let the agent answer; print each call, the answer, and the place of its quotation in the documents."""
    agent = FunctionAgent(tools=make_tools().to_tool_list(), llm=llm, system_prompt=INSTRUCTIONS)
    handler = agent.run(question)
    readings: list[Reading] = []
    async for event in handler.stream_events():
        if isinstance(event, ToolCallResult):
            print(f"{event.tool_name}({event.tool_kwargs})\n{event.tool_output.content}\n")
            readings.append(event.tool_output.raw_output)
    answer = str(await handler)
    print(f"Question: {question}\nAnswer: {answer}\n")
    for quote in re.findall(r'"([^"]+)"', answer):
        found = (cited for reading in readings for hit in reading.nodes for cited in cite(hit.node, quote))
        for document, start, end in dict.fromkeys(
            (cited.document_id, cited.start, cited.end) for cited in found
        ):
            print(f"Source: {document}, characters {start} to {end}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="An agent that reads on by itself.")
    parser.add_argument("question", nargs="?", default=QUESTION)
    parser.add_argument("--url", help="an OpenAI-compatible endpoint; a script plays the model without it")
    parser.add_argument("--model", default="default", help="name of the model at the endpoint")
    arguments = parser.parse_args()
    model = real_model(arguments.url, arguments.model) if arguments.url else scripted_model()
    asyncio.run(main(arguments.question, model))
