"""The errors that this package raises of its own.

    ContextAugmentationError (ValueError)
    ├── ConfigurationError     a parameter, or a combination of parameters, that cannot work
    ├── MissingNodeError       strict=True and a neighbor or parent is not in the docstore
    ├── RefusedNodeError       strict=True and a parent cannot take the place of its children
    └── UnclearAnswerError     on_unclear="raise" and a model's answer cannot be understood

An error of a docstore or of a model is passed on as it is, never wrapped.
"""


class ContextAugmentationError(ValueError):
    """The root of all errors that this package raises of its own."""


class ConfigurationError(ContextAugmentationError):
    """A parameter, or a combination of parameters, cannot work; the message says what does."""


class MissingNodeError(ContextAugmentationError):
    """A neighbor or parent that a link names is not in the docstore, and `strict=True`."""


class RefusedNodeError(ContextAugmentationError):
    """A node that the policy needs is in the docstore but cannot be taken, and `strict=True`."""


class UnclearAnswerError(ContextAugmentationError):
    """A model's answer cannot be understood, and `on_unclear="raise"`."""
