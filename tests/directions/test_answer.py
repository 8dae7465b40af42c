"""Reading a direction from a language model's reply."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from llama_index_ext_ctxaug.directions.answer import parse_direction, parse_directions
from llama_index_ext_ctxaug.directions.labels import DEFAULT_LABELS

REPLIES = [
    # a label and nothing else
    ("PREVIOUS", "previous"),
    ("NEXT", "next"),
    ("NONE", "none"),
    ("BOTH", "both"),
    ("next", "next"),
    ("Previous.", "previous"),
    ("  None\n", "none"),
    ("nExT!", "next"),
    ("PREV", "previous"),
    ("Neither", "none"),
    ("Neither.", "none"),
    ("before", "previous"),
    ("After", "next"),
    ("No", "none"),
    ("N/A", "none"),
    ("Nothing.", "none"),
    ("ＮＥＸＴ", "next"),
    # with formatting
    ("**NEXT**", "next"),
    ("`PREVIOUS`", "previous"),
    ('"NONE"', "none"),
    ("'next'", "next"),
    ("“PREVIOUS”", "previous"),
    ("```\nNEXT\n```", "next"),
    ("```text\nBOTH\n```", "both"),
    ("### NEXT", "next"),
    ("> NONE", "none"),
    ("- PREVIOUS", "previous"),
    ("1. NEXT", "next"),
    ("[NEXT]", "next"),
    ("<answer>PREVIOUS</answer>", "previous"),
    ("$\\boxed{NEXT}$", "next"),
    ("→ NEXT", "next"),
    ("NEXT ✅", "next"),
    # JSON
    ('{"answer": "NEXT"}', "next"),
    ('```json\n{"direction": "previous"}\n```', "previous"),
    ('{"reason": "The next step is there already.", "answer": "NONE"}', "none"),
    ('{"answer": "NONE", "reason": "nothing from the previous part is asked for"}', "none"),
    ('{"previous": true, "next": false}', "previous"),
    ('{"previous": true, "next": true}', "both"),
    ('{"previous": false, "next": false}', "none"),
    ('["PREVIOUS", "NEXT"]', "both"),
    ('{"directions": ["NEXT"]}', "next"),
    ('{"directions": []}', "none"),
    ("{'answer': 'NEXT'}", "next"),
    ('{"answer": null}', "none"),
    # with a lead
    ("Answer: NEXT", "next"),
    ("answer: previous", "previous"),
    ("**Answer:** NONE", "none"),
    ("Final answer: BOTH", "both"),
    ("The answer is NEXT.", "next"),
    ("My decision would be PREVIOUS.", "previous"),
    ("I would choose NEXT.", "next"),
    ("Sure! The direction is **PREVIOUS**.", "previous"),
    ("Output -> NONE", "none"),
    # with a reason
    ("NEXT - the excerpt stops before the result.", "next"),
    ("NEXT because the excerpt does not say what happened.", "next"),
    ("PREVIOUS: the pronoun refers to an earlier paragraph.", "previous"),
    ("NEXT (what comes before is not asked for)", "next"),
    ("NONE. The excerpt answers the question about the next king.", "none"),
    ("NONE - no previous context needed", "none"),
    ("The passage tells what happened next, so PREVIOUS is needed.", "previous"),
    ("We need the previous chunk to know who he was.", "previous"),
    ("The question asks what followed, therefore the next passage is required.", "next"),
    ("The passage does not say what happened next, so the next part is needed.", "next"),
    # denials
    ("NEXT, not PREVIOUS", "next"),
    ("NEXT not PREVIOUS", "next"),
    ("Not PREVIOUS but NEXT.", "next"),
    ("not previous", "none"),
    ("No previous context is needed; NEXT.", "next"),
    ("PREVIOUS is not needed. NEXT is.", "next"),
    ("PREVIOUS isn't needed, NEXT is needed.", "next"),
    ("I don't need the previous chunk.", "none"),
    ("Neither PREVIOUS nor NEXT is needed.", "none"),
    ("No previous or next context is needed.", "none"),
    ("None of the previous or next context is needed.", "none"),
    ("No additional context is needed.", "none"),
    ("PREVIOUS and NEXT are not needed.", "none"),
    ("The previous context is unnecessary, but the next is needed.", "next"),
    # several labels
    ("PREVIOUS and NEXT", "both"),
    ("PREVIOUS, NEXT", "both"),
    ("NEXT/PREVIOUS", "both"),
    ("previous & next", "both"),
    ("BOTH PREVIOUS and NEXT", "both"),
    ("Both the previous and the next chunk are needed.", "both"),
    ("Not only PREVIOUS but also NEXT.", "both"),
    ("PREVIOUS\nNEXT", "next"),
    ("NEXT\n\nOn reflection:\nNONE", "none"),
    # chain of thought
    ("In the excerpt: not stated\nPREVIOUS", "previous"),
    ("In the excerpt: what he did next\nNONE", "none"),
    ("The question asks what came before the war.\nThe excerpt starts with it.\n\nPREVIOUS", "previous"),
    ("Step 1: the next king is not named.\nStep 2: so more is needed.\nAnswer: NEXT", "next"),
    ("It could be PREVIOUS or NEXT. The cause comes first. So the answer is PREVIOUS.", "previous"),
    ("PREVIOUS might help, but it is not asked for. Final answer: NONE", "none"),
    ("<think>Maybe PREVIOUS? No, what follows is asked for.</think>\nNEXT", "next"),
    ("<think>\nNEXT\n</think>\n\n**NONE**", "none"),
    ("Hmm, PREVIOUS at first sight.\n</think>\nNEXT", "next"),
    ("<thinking>PREVIOUS</thinking> Answer: BOTH", "both"),
    # an invented further case after the verdict
    ("NEXT\n\nContext: He was born in Rome.\nQuestion: Who was his father?\nAnswer: PREVIOUS", "next"),
    ("NEXT is a thought.\nQuestion: what came first?\nAnswer: PREVIOUS", "previous"),
    ("PREVIOUS? No. NEXT.", "next"),
    ("I think the answer would be NONE because the previous chunk isn't needed.", "none"),
    # Chinese
    ("下一个", "next"),
    ("上一个", "previous"),
    ("上一個", "previous"),
    ("前", "previous"),
    ("前一个片段", "previous"),
    ("前后都需要", "both"),
    ("后", "next"),
    ("之前", "previous"),
    ("之后。", "next"),
    ("无", "none"),
    ("都不需要", "none"),
    ("不需要", "none"),
    ("没有", "none"),
    ("两者", "both"),
    ("两者都需要", "both"),
    ("答案：下一个", "next"),
    ("答案是上一段。", "previous"),
    ("**下一段**", "next"),
    ("「上一个」", "previous"),
    ("需要下一个片段,因为问题问的是后来的事。", "next"),
    ("需要查看之前的内容。", "previous"),
    ("不是上一个，而是下一个", "next"),
    ("不需要上一个，需要下一个。", "next"),
    ("既不需要上一个，也不需要下一个。", "none"),
    ("上一个和下一个", "both"),
    ("上一个和下一个都需要。", "both"),
    ("上一个和下一个都不需要。", "none"),
    ("不需要上一个或下一个片段。", "none"),
    ("不仅需要上文，也需要下文。", "both"),
    ("无需更多内容。", "none"),
    ("<think>问题问的是之前的事</think>PREVIOUS", "previous"),
    ("片段里没有提到结果，所以选 NEXT", "next"),
]

UNCLEAR = [
    "",
    "   \n",
    "Empty Response",
    "I cannot tell.",
    "PREVIOUS or NEXT",
    "PREVIOUS, NEXT or NONE",
    "Return PREVIOUS or NEXT or NONE.",
    "Either the previous or the next chunk.",
    "<think>NEXT would be right",
    "The author worked at a laboratory.",
    "He knew what to do, and did it after lunch.",
    "nonetheless, nextdoor",
    "42",
    "我不确定。",
    "suivant",
]

OTHER_LANGUAGES = {
    "previous": ["anterior", "précédent", "vorherige", "前の"],
    "next": ["siguiente", "suivant", "nächste", "次"],
    "none": ["ninguno", "aucun", "keine", "なし"],
    "both": ["ambos", "les deux", "beide", "両方"],
    "not": ["ni", "pas", "nicht"],
}


@pytest.mark.parametrize(("reply", "verdict"), REPLIES)
def test_verdict(reply: str, verdict: str) -> None:
    """Replies in the usual shapes are read as they are meant."""
    assert parse_direction(reply) == verdict


@pytest.mark.parametrize("reply", UNCLEAR)
def test_unclear(reply: str) -> None:
    """A reply without a verdict, or with several, is no verdict."""
    assert parse_direction(reply) is None


@pytest.mark.parametrize(
    ("reply", "verdict"),
    [
        ("Siguiente.", "next"),
        ("**anterior**", "previous"),
        ("Réponse : SUIVANT", "next"),
        ("suivant, pas précédent", "next"),
        ("les deux", "both"),
        ("Es wird nicht das vorherige, sondern das nächste Stück gebraucht.", "next"),
        ("次", "next"),
        ("なし", "none"),
        ("NEXT", "next"),
    ],
)
def test_other_languages(reply: str, verdict: str) -> None:
    """Labels of another language are understood as well as the English and Chinese ones."""
    assert parse_direction(reply, OTHER_LANGUAGES) == verdict


def test_own_label_wins() -> None:
    """A label given by the caller overrides a built-in meaning."""
    assert parse_direction("prior", {"next": ["prior"]}) == "next"


@given(st.text(max_size=200))
def test_any_text(reply: str) -> None:
    """No text raises; the result is a verdict or None."""
    assert parse_direction(reply) in ("previous", "next", "none", "both", None)


@given(
    st.lists(
        st.sampled_from(
            [*(w for words in DEFAULT_LABELS.values() for w in words), ",", ".", "\n", "and", "和"]
        )
    )
)
def test_any_labels(words: list[str]) -> None:
    """No combination of labels and joints raises."""
    assert parse_direction(" ".join(words)) in ("previous", "next", "none", "both", None)


@pytest.mark.parametrize(
    "reply",
    [
        "1: NEXT\n2: NONE\n3: PREVIOUS",
        "1. NEXT\n2. NONE\n3. PREVIOUS",
        "**1** - Next\n**2** - None\n**3** - Previous",
        "Excerpt 1: NEXT\nExcerpt 2: NONE\nExcerpt 3: PREVIOUS",
        '{"1": "NEXT", "2": "NONE", "3": "PREVIOUS"}',
        '```json\n{"excerpt_1": "NEXT", "excerpt_2": "NONE", "excerpt_3": "PREVIOUS"}\n```',
        '["NEXT", "NONE", "PREVIOUS"]',
        "3: PREVIOUS\n1: NEXT\n2: NONE",
        "<think>1: NONE</think>\n1: NEXT\n2: NONE\n3: PREVIOUS",
        "Here are the answers:\n\n1: NEXT - it goes on\n2: NONE\n3: PREVIOUS",
        "1: not stated | NEXT\n2: the next king | NONE\n3: not stated | PREVIOUS",
        "片段1：下一个\n片段2：无\n片段3：上一个",
    ],
)
def test_many_verdicts(reply: str) -> None:
    """One reply for several excerpts is read by their numbers."""
    assert parse_directions(reply, 3) == ["next", "none", "previous"]


@pytest.mark.parametrize(
    "reply",
    [
        "",
        "NEXT",
        "1: NEXT\n2: NONE",
        "1: NEXT\n2: NONE\n3: perhaps",
        "1: NEXT\n2: NONE\n2: NEXT",
        "1: NEXT\n2: NONE\n3: PREVIOUS\n4: NONE",
        '["NEXT", "NONE"]',
        '{"answer": "NEXT"}',
    ],
)
def test_unusable_many(reply: str) -> None:
    """A reply that omits an excerpt, or is unreadable for one, is not usable."""
    assert parse_directions(reply, 3) is None
