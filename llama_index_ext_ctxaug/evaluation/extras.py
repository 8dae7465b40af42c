"""Imports of optional packages."""

from __future__ import annotations

from importlib import import_module
from typing import Any

from llama_index_ext_ctxaug import ConfigurationError


def load_extra(module: str, extra: str) -> Any:
    """Import a module of an optional package.

    Args:
        module: full name of the module.
        extra: the extra of this package that installs it.

    Raises:
        ConfigurationError: the package is not installed.
    """
    try:
        return import_module(module)
    except ImportError as error:
        raise ConfigurationError(
            f"{module} cannot be imported ({error}): pip install 'llama-index-ext-ctxaug[{extra}]'"
        ) from error
