"""Sentence windows in English and Chinese: find a sentence, and read the text around it.

    python examples/sentence_window.py
    python examples/sentence_window.py --window-size 1

Needs the extras `examples` and `sentences`; no key, server or download. The texts are part of this file.
"""

from __future__ import annotations

import argparse
import logging

from llama_index.core import Document
from llama_index.core.schema import MetadataMode, NodeWithScore
from llama_index.retrievers.bm25 import BM25Retriever

from llama_index_ext_ctxaug import (
    MetadataReplacementPostProcessor,
    SentenceWindowParser,
    read_provenance,
)

ENGLISH = """\
The lighthouse of Holm stands on a rock two miles from the harbor. It was built by the town after
the winter in which three ships were lost. For eleven years it burned coal, which the keeper carried
up ninety steps each evening. Then oil took the place of coal. The lamp needed trimming every four
hours, so a second keeper came to the rock. They did not like each other. Each kept a log of his
own, and the two logs agree on nothing but the weather. In the storm of the fifth of March the lamp
went out. One log says that a pane was broken by a gull. The other says that the oil had frozen. The
town believed neither and bought a new lamp. It has burned ever since without a keeper. Visitors may
climb the steps in summer. From the top one sees the harbor, the old coal shed, and on clear days
the mountains."""

CHINESE = """\
灯塔立在离港口两里远的礁石上。那年冬天沉了三条船，镇上的人才决定修建它。头十一年里，灯塔烧的是煤。守塔人每天傍晚\
要把煤背上九十级台阶。后来煤油代替了煤。灯芯每四个小时就要修剪一次，所以礁石上又来了第二个守塔人。两个人合不来！\
他们各写各的日志，除了天气，没有一件事对得上。三月五日的风暴中，灯灭了。一本日志说，海鸥撞碎了玻璃。另一本说，\
煤油冻住了。该信谁呢？镇上的人谁也不信，买了一盏新灯。从那以后，它一直亮着，不再需要守塔人。夏天游客可以登塔。\
从塔顶能看到港口和旧煤棚，天晴时还能看到远山。"""

WORDS = r"(?u)\b\w\w+\b"
PAIRS = r"(?=([\u4e00-\u9fff]{2}))"
"""What keyword search takes for words: in Chinese, which has no spaces, every pair of characters."""

TEXTS = [
    ("English", ENGLISH.replace("\n", " "), "Why did the lamp go out in the storm of March?", WORDS),
    ("Chinese", CHINESE, "守塔人的日志说，灯为什么灭了？", PAIRS),
]


def main() -> None:
    """Run the program."""
    parser = argparse.ArgumentParser(description="Sentence windows in English and Chinese.")
    parser.add_argument("--window-size", type=int, default=2, help="sentences on each side")
    parser.add_argument("--top-k", type=int, default=3, help="sentences to find")
    options = parser.parse_args()
    logging.getLogger("bm25s").setLevel(logging.WARNING)
    for language, text, question, words in TEXTS:
        show(language, text, question, words, window_size=options.window_size, top_k=options.top_k)


def show(language: str, text: str, question: str, words: str, *, window_size: int, top_k: int) -> None:
    """Print the hits for a question, and the text that a model would read."""
    nodes = SentenceWindowParser(window_size=window_size).get_nodes_from_documents([Document(text=text)])
    retriever = BM25Retriever.from_defaults(
        nodes=nodes, similarity_top_k=min(top_k, len(nodes)), token_pattern=words, skip_stemming=True
    )
    hits = [hit for hit in retriever.retrieve(question) if hit.score]
    print(f"\n=== {language}: {len(nodes)} sentences. {question}\n\nFound:")
    for hit in hits:
        print(f"  {hit.score:.2f}  {hit.node.get_content().strip()}")

    windows = MetadataReplacementPostProcessor("window").postprocess_nodes(hits)
    merged = MetadataReplacementPostProcessor("window", merge_overlaps=True).postprocess_nodes(hits)
    print(
        f"\nWindows one by one: {length(windows)} characters. Merged, each sentence once: {length(merged)}.\n"
    )
    for hit in merged:
        print(f"  {hit.node.get_content(MetadataMode.LLM)}")
        provenance = read_provenance(hit.node)
        if provenance is not None:
            print(f"  ({provenance.role} made of {len(provenance.hits)} hits)\n")


def length(hits: list[NodeWithScore]) -> int:
    """Count the characters of the texts of hits."""
    return sum(len(hit.node.get_content()) for hit in hits)


if __name__ == "__main__":
    main()
