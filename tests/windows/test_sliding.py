"""Sliding windows cover a text in order, within the limit, in whole sentences, words and characters."""

from __future__ import annotations

import re
from collections.abc import Callable
from itertools import accumulate, pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from llama_index.core.node_parser.text.utils import split_by_sentence_tokenizer
from llama_index.core.utils import get_tokenizer

from llama_index_ext_ctxaug import ConfigurationError
from llama_index_ext_ctxaug.passages.span import Span
from llama_index_ext_ctxaug.windows.segmentation import cluster_spans, sentence_spans, word_spans
from llama_index_ext_ctxaug.windows.sliding import Window, sliding_windows

FAMILY, FLAG, THUMB, ACCENT, DEVANAGARI = "👩‍👩‍👧‍👦", "🇩🇪", "👍🏽", "e\u0301", "हिन्दी"
DISTINCT = "".join(chr(0x4E00 + number) for number in range(2000))
PARTS = (
    *("word ", "Sentence one. ", "今天天气很好。", "天", "3.14", "1,000 ", FAMILY, FLAG, THUMB, ACCENT),
    *(DEVANAGARI, "\n", "\n\n", "  ", "!", "？”", "a", "보험", "\r\n", "…", "- item\n", "|a|b|\n"),
)
MIXED = st.lists(st.sampled_from(PARTS), max_size=120)


@pytest.fixture(scope="module")
def count() -> Callable[[str], int]:
    """Count tokens as LlamaIndex does."""
    tokenizer = get_tokenizer()
    return lambda text: len(tokenizer(text))


def cut(text: str, window: int, stride: int, count: Callable[[str], int], **kw: object) -> list[Window]:
    """Return the windows of a text."""
    return sliding_windows(text, window_tokens=window, stride_tokens=stride, count_tokens=count, **kw)


def check(text: str, windows: list[Window], limit: int, count: Callable[[str], int]) -> None:
    """Check that windows cover the text in order, each ends later than the last, and none is too long."""
    assert windows[0].start == 0
    assert windows[-1].end == len(text)
    for before, after in pairwise(windows):
        assert before.start < after.start <= before.end < after.end
    for window in windows:
        part = text[window.start : window.end]
        assert window.tokens == count(part)
        assert window.tokens <= limit or len(cluster_spans(part, Span(0, len(part.rstrip())))) == 1


@settings(max_examples=150, deadline=None)
@given(text=MIXED.map("".join), window=st.integers(1, 60), data=st.data())
def test_windows_of_any_text_cover_it_within_the_limit(
    count: Callable[[str], int], text: str, window: int, data: st.DataObject
) -> None:
    """For any script, the windows cover the text in order, each at most window_tokens."""
    stride = data.draw(st.integers(1, window))
    windows = cut(text, window, stride, count)
    if text.strip():
        check(text, windows, window, count)
    else:
        assert windows == []
    assert windows == cut(text, window, stride, count)


@settings(max_examples=100, deadline=None)
@given(text=MIXED.map("".join), window=st.integers(8, 60))
def test_no_emoji_accent_word_or_number_is_cut(count: Callable[[str], int], text: str, window: int) -> None:
    """A window never begins or ends inside a cluster, or inside a word or number that fits."""
    clusters = {span.start for span in cluster_spans(text, Span(0, len(text)))} | {len(text)}
    # Beside a letter of another script, a word or number is part of a longer one, which may not fit.
    inside = {
        place
        for match in re.finditer(r"\w+(?:[.,':/-]\w+)*", text, re.ASCII)
        if count(match[0]) < window and text[max(0, match.start() - 1) : match.end() + 1].isascii()
        for place in range(match.start() + 1, match.end())
    }
    for one in cut(text, window, max(1, window // 4), count):
        assert {one.start, one.end} <= clusters
        assert not {one.start, one.end} & inside


@pytest.mark.parametrize(
    "clusters",
    [
        ["a", "\r\n", "b", "\n", "\r"],
        [FLAG, "🇫🇷", "🇮"],
        [FAMILY, THUMB, ACCENT, "1\ufe0f\u20e3", "🏴\U000e0067\U000e007f"],
        ["क्ष", "त्रि", "य"],
        ["क्", " ", "ष"],
        ["e\u200d", " ", "x"],
        ["\u1100\u1161\u11a8", "\u1100\u1161"],
        ["보", "험"],
    ],
)
def test_what_a_reader_sees_as_a_character_is_one(clusters: list[str]) -> None:
    """Line ends, flags, emoji, accents, joined letters and syllables of Hangul are each one cluster."""
    text = "".join(clusters)
    assert [text[slice(*span)] for span in cluster_spans(text, Span(0, len(text)))] == clusters
    assert cluster_spans(ACCENT + "x", Span(0, 1)) == [Span(0, 1)]  # it ends where another splitter cut it


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        (
            "Dr. Who came. He saw 3.5 of them! Why? yes.",
            ["Dr. Who came. ", "He saw 3.5 of them! ", "Why? yes."],
        ),
        ("See Fig. A. Then J. Smith left.", ["See Fig. A. Then J. Smith left."]),
        ("今天好。我们走！？你呢", ["今天好。", "我们走！？", "你呢"]),
        ("Title\n\nText of it", ["Title\n\n", "Text of it"]),
        ('He said "No." She left.', ['He said "No." ', "She left."]),
        ("क्या? हाँ। ठीक", ["क्या? ", "हाँ। ", "ठीक"]),
    ],
)
def test_sentences(text: str, sentences: list[str]) -> None:
    """Marks of many scripts and blank lines end a sentence; abbreviations, initials and numbers do not."""
    assert [text[slice(*span)] for span in sentence_spans(text)] == sentences


@pytest.mark.parametrize(
    ("split", "sentences"),
    [
        (["One.", "Two."], ["  One. ", "Two. "]),
        (["  One. ", " Two. "], ["  One. ", "Two. "]),
        (["One.", "Three.", "Two."], ["  One. ", "Two. "]),
        (["One.", "", "One."], ["  One. Two. "]),
        ([], ["  One. Two. "]),
    ],
)
def test_sentences_of_another_splitter(split: list[str], sentences: list[str]) -> None:
    """Text that a splitter omits is added to the sentence before, at the start to the first one."""
    text = "  One. Two. "
    assert [text[slice(*span)] for span in sentence_spans(text, lambda _: split)] == sentences


@pytest.mark.parametrize("tokens", [1, 12, 400, 512])
def test_a_text_that_fits_is_one_window(count: Callable[[str], int], tokens: int) -> None:
    """A text that fits has no extra windows that hold only covered text."""
    text = " word" * tokens
    assert cut(text, 512, 128, count) == [Window(0, len(text), tokens)]


@pytest.mark.parametrize("tokens", [513, 520, 896, 897, 1030])
@pytest.mark.parametrize("stride", [64, 128, 384, 512])
def test_each_window_adds_text(count: Callable[[str], int], tokens: int, stride: int) -> None:
    """At every length each window ends later than the one before, and only the last may be short."""
    text = " word" * tokens
    windows = cut(text, 512, stride, count)
    check(text, windows, 512, count)
    assert all(window.tokens >= 510 for window in windows[:-1])


@pytest.mark.parametrize(
    ("units", "window", "stride", "places"),
    [
        (7, 4, 2, [(0, 4), (2, 6), (4, 7)]),  # it adds half a stride and stays
        (9, 4, 3, [(0, 4), (3, 7), (6, 9)]),
        (8, 4, 3, [(0, 4), (4, 8)]),  # it adds less, and the text stays covered without its neighbor
        (9, 4, 4, [(0, 4), (4, 8), (5, 9)]),  # its neighbor is needed, so it is filled backwards
        (5, 4, 4, [(0, 4), (1, 5)]),
        (5, 4, 3, [(0, 4), (3, 5)]),  # it holds half a window
        (4, 4, 1, [(0, 4)]),
    ],
)
def test_a_last_window_that_adds_little(
    units: int, window: int, stride: int, places: list[tuple[int, int]]
) -> None:
    """The last window replaces its neighbor if the text stays covered; otherwise a short one is filled."""
    text = "abcdefghi"[:units]
    windows = cut(text, window, stride, len, split_sentences=list)
    assert [(one.start, one.end) for one in windows] == places


def test_a_word_that_is_as_long_as_a_window_stays_whole() -> None:
    """A word with exactly the tokens of a window is not cut."""
    assert [one.start for one in cut("ab abcdef xyz", 7, 7, len)] == [0, 3, 10]


@pytest.mark.parametrize("stride", [128, 384])
def test_windows_of_chinese_share_what_the_stride_leaves(count: Callable[[str], int], stride: int) -> None:
    """For 2,000 Chinese characters, neighboring windows of 512 tokens share 512 less the stride."""
    windows = cut(DISTINCT, 512, stride, count)
    check(DISTINCT, windows, 512, count)
    for before, after in list(pairwise(windows))[:-1]:
        shared = count(DISTINCT[after.start : before.end])
        assert abs(shared - (512 - stride)) < 30


def test_chinese_sentences_stay_whole(count: Callable[[str], int]) -> None:
    """Windows begin and end at 。！？ with no spaces in the text."""
    text = "今天天气很好。我们去公园散步。他在家看书！你呢？" * 30
    windows = cut(text, 64, 16, count)
    check(text, windows, 64, count)
    assert {text[window.end - 1] for window in windows} <= set("。！？")


@pytest.mark.parametrize("unit", ["字", "a", "🚀", "보험", "9", "-", "ab ", FAMILY, DEVANAGARI])
def test_a_long_run_without_marks_ends_and_stays_within_the_limit(
    count: Callable[[str], int], unit: str
) -> None:
    """A run of 1,500 units without punctuation is cut into windows that are full, except the last."""
    text = unit * 1500
    windows = cut(text, 512, 128, count)
    check(text, windows, 512, count)
    assert all(window.tokens > 400 for window in windows[:-1])


@pytest.mark.parametrize(("text", "window"), [("🚀", 1), ("보험" * 50, 2), (FAMILY * 3, 4)])
def test_a_character_longer_than_a_window_is_a_window(
    count: Callable[[str], int], text: str, window: int
) -> None:
    """A character with more tokens than a window is not cut."""
    windows = cut(text, window, 1, count)
    check(text, windows, window, count)
    assert [window[:2] for window in windows] == cluster_spans(text, Span(0, len(text)))


def test_a_small_tail_takes_the_place_of_its_neighbor(count: Callable[[str], int]) -> None:
    """A last window that would add less than half a stride gives no window of its own."""
    text = " word" * (512 + 128 + 128 + 10)
    windows = cut(text, 512, 128, count)
    starts = [window.start / 5 for window in windows]
    assert starts == pytest.approx([0, 128, 128 + 128 + 10], abs=3)
    check(text, windows, 512, count)


def test_a_small_tail_without_overlap_is_filled_backwards(count: Callable[[str], int]) -> None:
    """If windows do not overlap, the last one is as full as the others."""
    text = " word" * 1030
    windows = cut(text, 512, 512, count)
    assert all(505 <= window.tokens <= 512 for window in windows)
    assert len(windows) == 3
    check(text, windows, 512, count)


def test_joined_text_with_more_tokens_than_its_parts_is_shortened() -> None:
    """The limit holds for the window's own text, whatever its sentences count one by one."""

    def count(text: str) -> int:
        return len(text.split()) + 3 * text.strip().count(". ")

    text = "One two. " * 100
    windows = cut(text, 20, 5, count)
    check(text, windows, 20, count)
    assert {text[window.start : window.end] for window in windows} == {"One two. " * 4}


def test_equal_sentences_have_places_of_their_own(count: Callable[[str], int]) -> None:
    """Text that repeats gives windows with different offsets."""
    text = "Alpha. Same. Beta. Same."
    windows = cut(text, 4, 1, count)
    assert [text[w.start : w.end].strip() for w in windows] == ["Alpha.", "Same.", "Beta.", "Same."]
    assert len({(window.start, window.end) for window in windows}) == len(windows) == 4


@pytest.mark.parametrize(("window", "stride"), [(512, 0), (512, -1), (512, 513), (0, 1), (10, 11)])
def test_a_stride_that_cannot_work_is_refused(count: Callable[[str], int], window: int, stride: int) -> None:
    """A stride below 1 or above the window raises, with the numbers in the message."""
    with pytest.raises(ConfigurationError, match=str(stride if window else window)):
        cut("text", window, stride, count)


@pytest.mark.parametrize("text", ["", " ", "\n\n\t"])
def test_blank_text_has_no_window(count: Callable[[str], int], text: str) -> None:
    """Blank text gives no window."""
    assert cut(text, 512, 128, count) == []


def test_a_sentence_splitter_of_ones_own(count: Callable[[str], int]) -> None:
    """Windows begin and end between the sentences of LlamaIndex's splitter, stripped or not."""
    text = "First sentence here. Second one, e.g. this. Third. " * 20
    core = split_by_sentence_tokenizer()
    for split in (core, lambda t: [s.strip() for s in core(t)], lambda t: ["not there", *core(t)]):
        windows = cut(text, 40, 10, count, split_sentences=split)
        check(text, windows, 40, count)
        assert {window.start for window in windows} <= {span.start for span in sentence_spans(text, split)}


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Dr. Smith came. He left.", ["Dr. Smith came. ", "He left."]),
        ("Pi is 3.14 or so. Yes!", ["Pi is 3.14 or so. ", "Yes!"]),
        ('He said "Go." Then left.', ['He said "Go." ', "Then left."]),
        ("她说：“好。”然后走了。", ["她说：“好。”", "然后走了。"]),
        ("你好!再见?好", ["你好!", "再见?", "好"]),
        ("No mark\n\nNew paragraph", ["No mark\n\n", "New paragraph"]),
        ("यह है। वह है।", ["यह है। ", "वह है।"]),
        ("wait... what? no", ["wait... what? no"]),
    ],
)
def test_sentences_of_many_scripts(text: str, sentences: list[str]) -> None:
    """The built-in rule reads the marks of several scripts, and covers the text."""
    assert [text[span.start : span.end] for span in sentence_spans(text)] == sentences


SCRIPTS = {
    "Burmese": ["မြန်မာစကား၊ ကောင်း။ ", "ကျွန်တော်သွားမယ်။ ", "သူလာတယ်။"],
    "Khmer": ["ខ្ញុំទៅ។ ", "គាត់មក។ ", "ល្អ៕"],
    "Tibetan": ["བཀྲ་ཤིས། ། ", "ང་འགྲོ། ", "ཁོང་ཡོང་།"],
    "Armenian": ["Բարև։ ", "Ինչպե՞ս ես։ ", "Լավ եմ։"],
    "Ethiopic": ["ሰላም። ", "እንዴት ነህ፧ ", "ደህና።"],
    "Devanagari": ["यह है। ", "वह है॥ ", "ठीक?"],
    "Bengali": ["আমি যাই। ", "সে আসে।"],
    "Arabic": ["ذهبت. ", "هل أنت هنا؟ ", "لا."],
    "Urdu": ["یہ ہے۔ ", "وہ ہے۔"],
    "Greek": ["Πού είσαι; ", "Εδώ είμαι. ", "Έλα!"],
    "Greek in NFD": ["Πού πα\u0301ς\u037e ", "Εδώ."],
    "Mongolian": ["ᠮᠣᠩᠭᠣᠯ᠃ ", "ᠬᠡᠯᠡ᠃"],
    "Syriac": ["ܫܠܡܐ܀ ", "ܐܢܐ܀"],
    "Chinese": ["他说：“好。”", "然后走了！", "你呢？"],
    "Japanese with full-width stops": ["円周率は３．１４です．", "次は１．", "終わり．"],
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_windows_end_where_the_sentences_of_a_script_do(script: str) -> None:
    """Windows of one sentence each are the sentences, ended by the marks of each script."""
    sentences = SCRIPTS[script]
    text = "".join(sentences)
    assert [text[slice(*span)] for span in sentence_spans(text)] == sentences
    longest = max(map(len, sentences))
    ends = set(accumulate(map(len, sentences)))
    windows = sliding_windows(text, window_tokens=longest, stride_tokens=longest, count_tokens=len)
    assert {window.end for window in windows} <= ends


@pytest.mark.parametrize(
    "text",
    [
        "Π.χ. α; β",
        "Time 10:30 at example.org?q=a is fine",
        "３．１４，１５",
        "Он жил в г. москве",
        "Ես ասացի: այո",
    ],
)
def test_no_sentence_ends_here(text: str) -> None:
    """Marks inside numbers and words, and before lower case letters, end no sentence."""
    assert [text[slice(*span)] for span in sentence_spans(text)] == [text]


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("値は３．１４，円", ["値", "は", "３．１４，", "円"]),
        ("ယ်။ သူ", ["ယ်။ ", "သူ"]),
        ("GPT-4模型3.14，好", ["GPT-4", "模", "型", "3.14，", "好"]),
        (f"{FAMILY}{FLAG}{THUMB}", [FAMILY, FLAG, THUMB]),
        (f"caf{ACCENT}s now", [f"caf{ACCENT}s ", "now"]),
        (f"{DEVANAGARI} {DEVANAGARI}", [f"{DEVANAGARI} ", DEVANAGARI]),
        ("1,000.50 (don't)", ["1,000.50 ", "(", "don't)"]),
    ],
)
def test_words_of_many_scripts(text: str, words: list[str]) -> None:
    """Numbers, words with marks and emoji sequences are one unit each, and so is a Han character."""
    assert [text[span.start : span.end] for span in word_spans(text, Span(0, len(text)))] == words


@pytest.mark.parametrize("unit", ["A sentence of seven words it is. ", "这是一个没有标点的长句子", "word "])
def test_work_grows_with_the_text_and_no_faster(unit: str) -> None:
    """Ten times the text needs about ten times the characters counted, four times the text in all."""
    counted = [0]

    def count(text: str) -> int:
        counted[0] += len(text)
        return -(-len(text) // 4)

    def work(size: int) -> int:
        counted[0] = 0
        cut((unit * (size // len(unit) + 1))[:size], 512, 128, count)
        return counted[0]

    small, large = work(30_000), work(300_000)
    assert large < 12 * small
    assert large < 8 * 300_000


def test_a_million_characters(count: Callable[[str], int]) -> None:
    """A book of a million characters is covered, within the limit."""
    text = "The quick brown fox jumps over the lazy dog, e.g. at 3.14 o'clock. " * 15_000
    windows = cut(text, 512, 256, count)
    assert len(text) > 1_000_000
    assert windows[-1].end == len(text)
    assert all(before.end >= after.start for before, after in pairwise(windows))
    assert max(window.tokens for window in windows) <= 512
