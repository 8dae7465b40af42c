"""Show the messages of `verbose=True`."""

from __future__ import annotations

import logging
import sys


def show(logger: logging.Logger, message: str, *args: object) -> None:
    """Log at level INFO; if logging would hide that, write to standard output, as LlamaIndex does."""
    if logger.isEnabledFor(logging.INFO) and logger.hasHandlers():
        logger.info(message, *args)
    else:
        sys.stdout.write(message % args + "\n")
