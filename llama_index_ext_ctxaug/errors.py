"""The error classes of this package.

    ContextAugmentationError (ValueError)
    ├── ConfigurationError     invalid parameter, or invalid combination of parameters
    ├── MissingNodeError       strict=True and a neighbor or parent is not in the docstore
    ├── RefusedNodeError       strict=True and a parent cannot replace its children
    └── UnclearAnswerError     on_unclear="raise" and a model's answer cannot be understood

Errors of a docstore or a model are raised unchanged, never wrapped.
"""


class ContextAugmentationError(ValueError):
    """The base class of all errors of this package."""


class ConfigurationError(ContextAugmentationError):
    """A parameter, or a combination of parameters, is invalid; the message says what is valid."""


class MissingNodeError(ContextAugmentationError):
    """A linked neighbor or parent is not in the docstore, and `strict=True`."""


class RefusedNodeError(ContextAugmentationError):
    """A node that the policy needs cannot be used, and `strict=True`."""


class UnclearAnswerError(ContextAugmentationError):
    """A model's answer cannot be understood, and `on_unclear="raise"`."""
