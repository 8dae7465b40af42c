"""benchmarks/evidence.py: how much evidence reaches the model, on its own questions."""

from __future__ import annotations

import sys
from pathlib import Path

import llama_index.core
import pytest
from llama_index.core.retrievers import QueryFusionRetriever
from llama_index.core.utils import get_tokenizer

sys.path.insert(0, str(Path(__file__).parents[1] / "benchmarks"))  # they are scripts, not a package

from evidence import Search, Task, measure
from evidence_data import Corpus, Evidence, Question, distinct, own_corpus
from evidence_measure import BUDGETS, Calls, count_tokens, narrow, wide
from evidence_report import Title, report
from evidence_search import fused
from evidence_ways import all_ways


@pytest.fixture(autouse=True)
def _tokenizer(monkeypatch: pytest.MonkeyPatch) -> None:
    """Restore the tokenizer: measuring installs one that caches."""
    monkeypatch.setattr(llama_index.core, "global_tokenizer", get_tokenizer())


@pytest.fixture
def corpus() -> Corpus:
    """A question on a few help topics."""
    whole = own_corpus()
    documents = {name: whole.documents[name] for name in ("import", "try", "with")}
    return Corpus("topics", documents, [one for one in whole.questions if one.document in documents])


@pytest.fixture
def search(corpus: Corpus) -> Search:
    """Two questions, searched by words."""
    return Search(corpus, range(2), Task("", 64, "BM25"), None)


def test_its_own_questions_have_evidence() -> None:
    """Only its own questions with evidence in this Python's topics are asked."""
    corpus = own_corpus()
    assert len(corpus.questions) >= 15
    assert all(Evidence(corpus, question).total > 10 for question in corpus.questions)


def test_every_way_is_measured(search: Search) -> None:
    """Each way gives shares from 0 to 1 at each budget, finds something, and is in each table."""
    results = {
        name: measure(way, search, [0]) for name, way in all_ways(search.chunks, search.scorer).items()
    }
    for name, result in results.items():
        (shares,) = result.share
        assert len(shares) == len(BUDGETS), name
        assert all(0 <= share <= 1 for share in shares), name
        assert shares[-1] > 0, name
    text = report({Title("topics", "BM25", 64, 1, "BM25"): results}, 100)
    assert all(text.count(f"| {name} |") == 4 for name in results if name != "RelevantSegments")


@pytest.mark.parametrize("budget", [250, 1000])
def test_no_way_takes_more_than_the_budget(corpus: Corpus, search: Search, budget: int) -> None:
    """The counted text has no more tokens than the budget, except at the seams between chunks."""
    for name, way in all_ways(search.chunks, search.scorer).items():
        calls = Calls(way, search.pools[0], search.texts[0])
        row = (wide if way.budgeted else narrow)(calls, budget)
        tokens = sum(count_tokens(corpus.documents[document][start:end]) for document, start, end in row)
        assert 0 < tokens <= 1.05 * budget + 5, name


def test_evidence_is_counted_once() -> None:
    """Spans that overlap cover their characters once, and white space is no evidence."""
    evidence = Evidence(Corpus("c", {"d": "ab cd ef"}, []), Question("?", "d", [(1, 5)], "eval"))
    spans = distinct([("d", 0, 4), ("d", 2, 5), ("e", 0, 8)])
    assert spans == [("d", 0, 5), ("e", 0, 8)]
    assert (evidence.total, evidence.covered(spans), evidence.covered([("d", 3, 4)])) == (3, 3, 1)


def test_fusion_is_by_reciprocal_rank(search: Search) -> None:
    """Two lists are fused with the scores that LlamaIndex's QueryFusionRetriever gives."""
    one, other = search.pools[0][:20], search.pools[1][:20]
    found = {hit.node.node_id: hit.score for hit in fused([one, other], 100)}
    fuse = QueryFusionRetriever._reciprocal_rerank_fusion
    expected = fuse(None, {("a", 0): one, ("b", 0): other})  # type: ignore[arg-type]
    assert found == {hit.node.node_id: hit.score for hit in expected}
