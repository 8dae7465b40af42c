"""Entry point of the command `ctxaug`."""

from __future__ import annotations

import sys


def main() -> None:
    """Run the command; it needs the extra `cli`."""
    try:
        import click  # noqa: F401
    except ImportError:
        sys.stderr.write("ctxaug needs click: pip install 'llama-index-ext-ctxaug[cli]'\n")
        sys.exit(1)
    from llama_index_ext_ctxaug.evaluation.cli import ctxaug

    ctxaug()
