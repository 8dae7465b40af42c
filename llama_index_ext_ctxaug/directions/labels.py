"""English and Chinese words for the directions in replies of a language model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

Labels = Mapping[str, Sequence[str]]
"""Words for "previous", "next", "none" and "both", and under "not" the words that deny one of them."""


def _words(text: str) -> tuple[str, ...]:
    return tuple(word.strip() for word in text.split(","))


DEFAULT_LABELS: Labels = {
    "previous": _words(
        "previous, prev, preceding, 上一个, 上一個, 上一段, 上一, 前一, 上文, 前文, 之前, 以前, 前面, 向前"
    ),
    "next": _words(
        "next, following, subsequent, 下一个, 下一個, 下一段, 下一, 后一, 後一, 下文, 后文, 後文, 之后, 之後,"
        "以后, 以後, 后面, 後面, 向后, 向後"
    ),
    "none": _words(
        "none, neither, nothing, no additional, no further, no more, no extra, no other,"
        "都不需要, 都不用, 均不需要, 皆不需要, 不需要任何, 不需要更多, 不需要额外, 无需, 無需"
    ),
    "both": _words("both, 两者, 兩者, 前后文, 前後文, 前后都, 前後都"),
    "not": _words(
        "not, no, nor, without, cannot, can't, don't, doesn't, didn't, isn't, aren't, wasn't, needn't, won't,"
        "wouldn't, unnecessary, unneeded, irrelevant, 不, 无, 無, 没, 沒, 非, 别, 別"
    ),
}
"""Words that count anywhere in a reply."""

LABELS_ALONE: Labels = {
    "previous": _words("before, earlier, prior, back, backward, backwards, 前, 上"),
    "next": _words("after, later, forward, forwards, 后, 後, 下"),
    "none": _words("no, null, nil, n/a, 无, 無, 无关, 没有, 沒有, 不需要, 不用, 都不, 都不要, 皆不, 均不"),
    "both": _words("前后, 前後, 上下文, 都需要, 都要, 两个都需要, 两个, 兩個"),
}
"""Words that are too vague inside a sentence, and count only as the whole of a line or a field."""
