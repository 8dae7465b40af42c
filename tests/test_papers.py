"""The project's papers name sessions, files and addresses that exist."""

from __future__ import annotations

import ast
import inspect
import re
import sys
from pathlib import Path
from typing import get_origin

from llama_index.core.base.base_retriever import BaseRetriever
from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.schema import TransformComponent

import llama_index_ext_ctxaug

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib  # pytest brings it

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))
PAPERS = [*sorted(ROOT.glob("*.md")), *sorted((ROOT / ".github").rglob("*.y*ml"))]


def text_of(paths: list[Path]) -> str:
    """Return the text of all files."""
    return "\n".join(path.read_text("utf-8") for path in paths)


def test_named_sessions_exist() -> None:
    """Each nox session that a paper or a workflow names is defined."""
    functions = [n for n in ast.parse(text_of([ROOT / "noxfile.py"])).body if isinstance(n, ast.FunctionDef)]
    defined = {function.name for function in functions}
    named = set(re.findall(r"nox -s ([a-z]+)|session: ([a-z]+)", text_of(PAPERS)))
    assert named
    assert {one or other for one, other in named} <= defined


def test_the_lowest_llama_index_core_is_named() -> None:
    """README names the lowest llama-index-core that the package can be installed with."""
    [required] = PROJECT["project"]["dependencies"]
    lowest = re.fullmatch(r"llama-index-core>=([\d.]+),<[\d.]+", required)
    assert lowest
    assert f"llama-index-core {lowest[1]} to " in text_of([ROOT / "README.md"])


def test_every_component_is_in_the_hub_s_list() -> None:
    """[tool.llamahub] names each exported postprocessor, transformation and retriever, and nothing else."""
    kinds = (BaseNodePostprocessor, TransformComponent, BaseRetriever)
    exported = {name: getattr(llama_index_ext_ctxaug, name) for name in llama_index_ext_ctxaug.__all__}
    components = {
        name
        for name, value in exported.items()
        if inspect.isclass(value)
        and get_origin(value) is None  # Python 3.10 takes aliases of generic types for classes
        and issubclass(value, kinds)
        and name != "ContextAugmenter"  # a base
    }
    assert sorted(PROJECT["tool"]["llamahub"]["class_authors"]) == sorted(components)
