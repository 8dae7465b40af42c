"""Entry point of the command `ctxaug`, outside the package, whose import takes longer than a second."""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.util import find_spec


def main() -> None:
    """Run the command; it needs the extra `cli`."""
    if find_spec("click") is None:
        sys.exit("ctxaug needs click: pip install 'llama-index-ext-ctxaug[cli]'")
    sys.stderr.write("Loading LlamaIndex\n")
    import_module("llama_index_ext_ctxaug.evaluation.cli").ctxaug()
