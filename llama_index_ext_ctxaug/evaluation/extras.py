"""Imports of optional packages."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from llama_index_ext_ctxaug import ConfigurationError


def load_extra(module: str, extra: str) -> Any:
    """Import a module that an extra of this package installs.

    Raises:
        ConfigurationError: it is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f"{module} cannot be imported ({error}): pip install 'llama-index-ext-ctxaug[{extra}]'"
        ) from error
