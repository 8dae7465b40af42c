"""The compared systems: named lists of postprocessors, each also within a token budget."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from llama_index.core.postprocessor.types import BaseNodePostprocessor

from llama_index_ext_ctxaug import ConfigurationError, TokenBudgetPostprocessor

BASELINE = "pass-through"
"""The system that adds nothing to the hits, as AutoRAG's `pass_passage_augmenter`."""

_BUDGET_FIELDS = ("token_budget", "max_context_tokens")

Augmenters = Mapping[str, BaseNodePostprocessor | Sequence[BaseNodePostprocessor]]


@dataclass(frozen=True)
class System:
    """A named list of postprocessors.

    Attributes:
        name: its name in the report.
        postprocessors: in the order in which they run; empty for the baseline.
        settings: its changed parameters, for the report.
    """

    name: str
    postprocessors: tuple[BaseNodePostprocessor, ...]
    settings: str

    def within(self, budget: int | None) -> list[BaseNodePostprocessor]:
        """Return the postprocessors within a token budget, ready for `node_postprocessors=`.

        A postprocessor with a budget of its own gets this one, to spend it by its own priorities; a
        `TokenBudgetPostprocessor` at the end holds every system to it.
        """
        result = list(self.postprocessors)
        if budget is None:
            return result
        for field in _BUDGET_FIELDS:
            if result and field in type(result[-1]).model_fields:
                own = getattr(result[-1], field)
                limit = min(own, budget) if isinstance(own, int) else budget
                result[-1] = result[-1].model_copy(update={field: limit})
        return [*result, TokenBudgetPostprocessor(token_budget=budget)]


def make_systems(augmenters: Augmenters) -> list[System]:
    """Return the baseline, then the given systems.

    Raises:
        ConfigurationError: a name is taken or blank, or a value is not a postprocessor.
    """
    systems = [System(BASELINE, (), "")]
    for name, value in augmenters.items():
        if not isinstance(name, str) or not name.strip() or name == BASELINE:
            raise ConfigurationError(
                f"augmenters: {name!r} cannot be a name; {BASELINE!r} is the system without an augmenter"
            )
        postprocessors = (value,) if isinstance(value, BaseNodePostprocessor) else tuple(value)
        for postprocessor in postprocessors:
            if not isinstance(postprocessor, BaseNodePostprocessor):
                raise ConfigurationError(
                    f"augmenters[{name!r}]: {postprocessor!r} is not a BaseNodePostprocessor or a list"
                )
        systems.append(System(name, postprocessors, "; ".join(map(_settings, postprocessors))))
    return systems


def _settings(postprocessor: BaseNodePostprocessor) -> str:
    """Return the class and the parameters that differ from their default."""
    fields = type(postprocessor).model_fields
    changed = [
        f"{name}={value!r}"
        for name, value in postprocessor
        if name in fields
        and not fields[name].exclude
        and name != "callback_manager"
        and isinstance(value, str | int | float | bool | tuple | list | None)
        and value != fields[name].default
    ]
    return f"{type(postprocessor).__name__}({', '.join(changed)})"


def fingerprint(systems: Sequence[System], **settings: object) -> str:
    """Return a short text that is equal for equal systems and settings."""
    data = [[(system.name, system.settings) for system in systems], sorted(settings.items())]
    return hashlib.sha256(json.dumps(data, default=str).encode()).hexdigest()[:16]
