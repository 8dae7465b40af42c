"""Show BRSR step by step: the hits, the sections around them, the windows, and the best of them.

    python examples/brsr.py
    python examples/brsr.py --language zh

The text ships with this file. No key, model or download is needed: similarity is that of shared words
(in Chinese, characters), by an embedding made for tests. Pass your own `embed_model=` or `reranker=` to
`BRSRPostprocessor`, and everything else stays as it is here.
"""

from __future__ import annotations

import argparse
import textwrap

from llama_index.core import Document
from llama_index.core.node_parser import SentenceSplitter
from llama_index.core.schema import MetadataMode, NodeWithScore
from llama_index.core.storage.docstore import SimpleDocumentStore
from llama_index.core.utils import get_tokenizer

from llama_index_ext_ctxaug import (
    BRSRPostprocessor,
    RerankPostprocessor,
    SectionPostprocessor,
    SlidingWindowPostprocessor,
    read_provenance,
)
from llama_index_ext_ctxaug.testing import WordEmbedding

ENGLISH = """\
# The lighthouse of Greyholm

## 1.1 How it was built

The lighthouse of Greyholm stands on a rock two miles from the shore. Work on it began in the spring
of 1871. Masons could land only in calm weather, about ninety days in a year. The stones were cut on
the mainland, put together there on trial, and numbered. A small steamer carried them over, twelve
at a time. In the second winter a storm took away the landing stage and the crane. The tower was
finished four years after it had been begun.

## 1.2 The lamp

The first lamp burned oil pressed from rape seed. It was replaced in 1902 by a burner for vaporized
paraffin, which was six times as bright. The lens has two panels, so that sailors see two flashes
and then a longer dark. It weighs three tons and floats on mercury, and a child could turn it with
one finger. Clockwork drove it, and a weight that had to be wound up every forty minutes. Electric
light came in 1958, by a cable under the sea.

## 1.3 The keepers

Three keepers lived in the tower at any time, and a fourth was on leave ashore. They kept watches of
four hours. They wrote down the weather, the ships and the state of the lamp. Water was collected
from the gallery when it rained. Letters and bread came every second week, if the sea allowed it. In
the winter of 1894 the boat did not come for fifty-three days. The keepers baked with what they had,
and burned the furniture of the spare room. The last keeper left in 1983, when the lamp was made to
work by itself.

## 1.4 Birds

On dark nights with fog, migrating birds fly around the light until they drop. The keepers counted
them for the museum in the town. In one night of October 1911 they noted more than six hundred
redwings and larks. Since the light was made weaker towards the land, far fewer birds are found on
the gallery.
"""

CHINESE = """\
第一章 灯塔的建造

灰岛灯塔建在离岸两海里的一块礁石上。工程于一八七一年春天开始。石匠只能在风平浪静的时候登上礁石，一年大约九十天。石块在陆地上凿好，先试着拼在一起，再编上号码。
一条小汽船把石块运过去，每次十二块。第二年冬天，风暴卷走了码头和吊车。灯塔用了四年才建成。

第二章 灯

第一盏灯烧的是菜籽油。一九〇二年换成了煤油汽灯，亮度是原来的六倍。透镜有两面，所以水手先看到两次闪光，然后是一段较长的黑暗。
透镜重三吨，浮在水银上，小孩子用一根手指就能推动它。钟表机构带动透镜转动，重锤每四十分钟要重新绞起来。一九五八年，海底电缆送来了电灯。

第三章 守塔人

塔里总是住着三个守塔人，第四个人在岸上休假。他们每班四个小时，记下天气、船只和灯的情况。下雨的时候，他们从平台上收集雨水。
只要海况允许，每两个星期送来一次信和面包。一八九四年冬天，船有五十三天没有来。守塔人用剩下的东西烤面包，烧掉了空房间里的家具。
一九八三年灯改为自动，最后一个守塔人离开了灯塔。

第四章 鸟

有雾的黑夜里，迁徙的鸟绕着灯光飞，直到落下来。守塔人为镇上的博物馆数鸟。一九一一年十月的一个夜里，他们记下了六百多只鸫和云雀。
自从朝向陆地的灯光调暗以后，平台上的死鸟少多了。
"""

TEXTS = {
    "en": (ENGLISH, "What did the keepers burn when the boat did not come?"),
    "zh": (CHINESE, "船没有来的时候，守塔人烧掉了什么？"),
}


def main() -> None:
    """Run the steps, print each result, and show that BRSR gives the same at once."""
    parser = argparse.ArgumentParser(description="Shows BRSR step by step.")
    parser.add_argument("--language", choices=sorted(TEXTS), action="append", help="en, zh; both by default")
    for language in parser.parse_args().language or ["en", "zh"]:
        show(*TEXTS[language])


def show(text: str, question: str) -> None:
    """Show all steps for one text and question."""
    model = WordEmbedding()
    document = Document(text=text, id_="greyholm")
    splitter = SentenceSplitter(chunk_size=64, chunk_overlap=0, secondary_chunking_regex="[^。]+[。]?|[。]")
    chunks = splitter.get_nodes_from_documents([document])
    docstore = SimpleDocumentStore()
    docstore.add_documents([*chunks, document])
    retrieve = RerankPostprocessor(embed_model=model, top_n=3)
    hits = retrieve.postprocess_nodes([NodeWithScore(node=chunk) for chunk in chunks], query_str=question)
    print_nodes(f"{question}\n{len(chunks)} chunks, the nearest 3:", hits)

    section = SectionPostprocessor(docstore=docstore, expansion_tokens=256, output="passages")
    regions = section.postprocess_nodes(hits)
    print_nodes("1, 2. Grown both ways to the headings, what meets joined:", regions)

    cutter = SlidingWindowPostprocessor(window_tokens=96, stride_tokens=32)
    windows = cutter.postprocess_nodes(regions)
    print_nodes("3. Cut again into windows of 96 tokens at a stride of 32:", windows)

    rerank = RerankPostprocessor(embed_model=model, top_n=10)
    best = rerank.postprocess_nodes(windows, query_str=question)
    print_nodes("4. Reranked, the best ten that do not repeat each other:", best)

    brsr = BRSRPostprocessor(docstore=docstore, embed_model=model, window_tokens=96, stride_tokens=32)
    at_once = brsr.postprocess_nodes(hits, query_str=question)
    same = [hit.node.node_id for hit in at_once] == [hit.node.node_id for hit in best]
    print(f"\nBRSRPostprocessor gives the same at once: {same}")
    assert same


def print_nodes(title: str, nodes: list[NodeWithScore]) -> None:
    """Print nodes with score, tokens and their characters in the document."""
    tokenizer = get_tokenizer()
    print(f"\n{title}")
    for hit in nodes:
        text = hit.node.get_content(metadata_mode=MetadataMode.NONE)
        score = "  -  " if hit.score is None else f"{hit.score:.3f}"
        provenance = read_provenance(hit.node)
        kind = "chunk" if provenance is None else provenance.role
        place = f"{hit.node.start_char_idx}..{hit.node.end_char_idx}"
        line = textwrap.shorten(" ".join(text.split()), 400)
        line = line if len(line) <= 60 else f"{line[:36]} ... {line[-20:]}"
        print(f"  {score}  {kind:8} {len(tokenizer(text)):4} tokens  {place:>10}  {line}")


if __name__ == "__main__":
    main()
