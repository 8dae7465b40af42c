"""The package as a whole: public names, cost of importing, version and errors."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from importlib.metadata import version
from pathlib import Path
from typing import get_origin

import llama_index_ext_ctxaug as package

ROOT = Path(__file__).parents[1]
HEAVY = [
    "torch",
    "sentence_transformers",
    "transformers",
    "openai",
    "matplotlib",
    "pandas",
    "pyarrow",
    "ir_measures",
    "redis",
    "duckdb",
    "psycopg2",
]


def test_exported_names() -> None:
    """`__all__` is sorted, and is exactly what the package defines as public."""
    public = {name for name in vars(package) if not name.startswith("_")}
    modules = {name for name in public if f"{package.__name__}.{name}" in sys.modules}
    assert set(package.__all__) == public - modules
    assert package.__all__ == sorted(package.__all__, key=lambda name: (not name.isupper(), name))


def test_every_exported_name_is_documented() -> None:
    """Each public class or function has a docstring."""
    for name in package.__all__:
        thing = getattr(package, name)
        if inspect.isroutine(thing) or (isinstance(thing, type) and get_origin(thing) is None):
            assert thing.__doc__, name


def test_importing_is_light() -> None:
    """Importing the package imports nothing heavier than llama-index-core."""
    program = f"import sys, llama_index_ext_ctxaug; print([m for m in {HEAVY} if m in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


def test_the_versions_agree() -> None:
    """`__version__`, the installed metadata and the newest release in the changelog agree."""
    changelog = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    newest = re.search(r"^## (\d+\.\d+\.\d+) - ", changelog, re.MULTILINE)
    assert newest
    assert newest.group(1) == package.__version__ == version("llama-index-ext-ctxaug")


def test_errors_are_value_errors() -> None:
    """Every error of the package's own can be caught as ContextAugmentationError, or as ValueError."""
    for name in package.__all__:
        thing = getattr(package, name)
        if isinstance(thing, type) and issubclass(thing, Exception):
            assert issubclass(thing, package.ContextAugmentationError)
            assert issubclass(thing, ValueError)


def test_test_modules_have_names_of_their_own() -> None:
    """Pytest imports test modules by name, so no two may share one."""
    names = [path.name for path in Path(__file__).parent.rglob("test_*.py")]
    assert len(names) == len(set(names))
