"""Augmenters by name, and settings from a YAML file in AutoRAG's format."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from llama_index.core.postprocessor.types import BaseNodePostprocessor
from llama_index.core.storage.docstore.types import BaseDocumentStore

from llama_index_ext_ctxaug import (
    ConfigurationError,
    PrevNextNodePostprocessor,
    RelevantSegmentsPostprocessor,
    SectionPostprocessor,
)
from llama_index_ext_ctxaug.evaluation.extras import load_extra

Factory = Callable[[BaseDocumentStore], list[BaseNodePostprocessor]]

_MODES = {"prev": "previous", "previous": "previous", "next": "next", "both": "both"}
_NODE_KEYS = {"node_type", "strategy", "top_k", "modules"}
_STRATEGY_KEYS = {"metrics", "strategy", "speed_threshold", "token_threshold"}
_EXPLAINED = {
    "embedding_model": "with --model PATH nodes are scored by that model, and top_k kept, as AutoRAG does",
    "node_line_name": "node lines have no counterpart",
}


def _factory(augmenter: Callable[..., BaseNodePostprocessor], **options: Any) -> Factory:
    return lambda docstore: [augmenter(docstore=docstore, **options)]


AUGMENTERS: dict[str, Factory] = {
    f"{mode}-{number}{suffix}": _factory(
        PrevNextNodePostprocessor, num_nodes=number, mode=mode, output=output
    )
    for mode in ("previous", "next", "both")
    for number in (1, 2, 3)
    for suffix, output in (("", "nodes"), ("-passages", "passages"))
} | {
    "section": _factory(SectionPostprocessor, output="passages"),
    "relevant-segments": _factory(RelevantSegmentsPostprocessor, output="passages"),
}
"""The augmenters that `--augmenter NAME` accepts."""

WIDE_POOL_AUGMENTERS = frozenset({"relevant-segments"})
"""Augmenters that select from a wide pool of hits."""

WIDE_POOL = 30
"""Number of hits in a wide pool."""

DEFAULTS = ("next-1", "both-1-passages", "both-2-passages", "relevant-segments")
"""The augmenters that are compared if none is named."""


@dataclass
class Settings:
    """The settings of a comparison; `choice` has arguments of `Report.choose`, `notes` what is not used."""

    augmenters: dict[str, Factory] = field(default_factory=dict)
    top_k: int | None = None
    metrics: list[str] | None = None
    choice: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)


def named_augmenters(names: tuple[str, ...]) -> dict[str, Factory]:
    """Return the augmenters of these names.

    Raises:
        ConfigurationError: a name is unknown.
    """
    unknown = [name for name in names if name not in AUGMENTERS]
    if unknown:
        raise ConfigurationError(f"no augmenter is called {unknown[0]!r}; known are {', '.join(AUGMENTERS)}")
    return {name: AUGMENTERS[name] for name in names}


def read_settings(path: str | Path) -> Settings:
    """Read a YAML file in AutoRAG's format: a `passage_augmenter` node alone, in a list, or in `node_lines`.

    A list as a parameter of a module makes one system for each value.

    Raises:
        ConfigurationError: not YAML, no such node, or an invalid value.
    """
    yaml = load_extra("yaml", "cli")
    try:
        data = yaml.safe_load(Path(path).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise ConfigurationError(f"{str(path)!r} cannot be read as YAML: {error}") from error
    settings = Settings()
    nodes = _find_nodes(data, settings.notes)
    if not nodes:
        raise ConfigurationError(f"{str(path)!r} has no node with node_type: passage_augmenter")
    if len(nodes) > 1:
        settings.notes.append(f"{len(nodes)} passage_augmenter nodes; only the first is used")
    _read_node(nodes[0], settings)
    return settings


def _find_nodes(data: Any, notes: list[str]) -> list[Mapping[str, Any]]:
    if isinstance(data, list):
        return [node for item in data for node in _find_nodes(item, notes)]
    if not isinstance(data, Mapping):
        return []
    if data.get("node_type") == "passage_augmenter":
        return [data]
    if "node_type" in data:
        notes.append(f"node_type {data['node_type']!r} has no counterpart and is not run")
        return []
    return [node for key in ("node_lines", "nodes") for node in _find_nodes(data.get(key), notes)]


def _read_node(node: Mapping[str, Any], settings: Settings) -> None:
    _note_unknown(node, _NODE_KEYS, "passage_augmenter", settings.notes)
    strategy = node.get("strategy") or {}
    if isinstance(strategy, str):
        strategy = {"strategy": strategy}
    if not isinstance(strategy, Mapping):
        raise ConfigurationError(f"strategy must be a mapping, is {strategy!r}")
    _note_unknown(strategy, _STRATEGY_KEYS, "strategy", settings.notes)
    settings.choice = {
        key: strategy[key] for key in ("strategy", "speed_threshold", "token_threshold") if key in strategy
    }
    settings.metrics = [str(name) for name in strategy.get("metrics") or ()] or None
    if node.get("top_k") is not None:
        settings.top_k = _positive(node["top_k"], "top_k")
    modules = node.get("modules")
    if not isinstance(modules, list) or not modules:
        raise ConfigurationError(f"modules must be a list of modules, is {modules!r}")
    for module in modules:
        _read_module(module, settings)


def _read_module(module: Any, settings: Settings) -> None:
    kind = module.get("module_type") if isinstance(module, Mapping) else module
    if kind in ("pass_passage_augmenter", "PassPassageAugmenter"):
        return  # the baseline always takes part
    if kind not in ("prev_next_augmenter", "PrevNextPassageAugmenter"):
        settings.notes.append(f"module_type {kind!r} has no counterpart and is not run")
        return
    options = {} if isinstance(module, str) else dict(module)
    _note_unknown(options, {"module_type", "num_passages", "mode"}, "prev_next_augmenter", settings.notes)
    for count, mode in itertools.product(
        _values(options.get("num_passages", 1)), _values(options.get("mode", "both"))
    ):
        if mode not in _MODES:
            raise ConfigurationError(f"mode must be 'prev', 'next' or 'both', is {mode!r}")
        number = _positive(count, "num_passages")
        name = f"prev_next_augmenter num_passages={number} mode={mode}"
        settings.augmenters[name] = _factory(PrevNextNodePostprocessor, num_nodes=number, mode=_MODES[mode])


def _values(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _positive(value: Any, name: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 1:
        raise ConfigurationError(f"{name} must be a whole number of at least 1, is {value!r}")
    return value


def _note_unknown(data: Mapping[str, Any], known: set[str], place: str, notes: list[str]) -> None:
    for key in data:
        if key not in known:
            notes.append(f"{place}: {key!r} is not used: {_EXPLAINED.get(key, 'it has no counterpart')}")
