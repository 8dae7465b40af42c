"""Finding where sections begin, by text and by metadata, in English and Chinese."""

from __future__ import annotations

import itertools

import pytest
from hypothesis import given
from hypothesis import strategies as st
from llama_index.core import Document
from llama_index.core.node_parser import MarkdownNodeParser, SentenceSplitter
from llama_index.core.schema import TextNode

from llama_index_ext_ctxaug import Sections
from llama_index_ext_ctxaug.structure.headings import Heading, find_headings, heading_path

BODY = "\n\nThe body of this section is one sentence long.\n"

HEADINGS = [
    ("# Top", 1),
    ("## The second level ##", 2),
    ("###### Deep", 6),
    ("  ## Indented by two", 2),
    ("## 第二级标题", 2),
    ("Setext one\n==========", 1),
    ("Setext two\n----------", 2),
    ("中文标题\n========", 1),
    ("Python topics\n*************", 0),
    ("*************\nPython topics\n*************", 0),
    ("Subtopic\n~~~~~~~~", 3),
    ('Paragraph\n"""""""""', 4),
    ("1. Underlined and numbered\n==========================", 1),
    ("3.2 Title", 3),
    ("3.2. Title", 3),
    ("10.4.1 What is a heading?", 4),
    ("3.2 标题", 3),
    ("3. Results", 2),
    ("3 Results and discussion", 2),
    ("IV. Related work", 2),
    ("3、结果", 2),
    ("Chapter 5", 2),
    ("CHAPTER IV. The Voyage", 2),
    ("Part II", 1),
    ("Appendix A Proofs", 2),
    ("Section 3.1 Fees and charges", 3),
    ("Article 5", 4),
    ("Article 5. The parties shall agree on the terms.", 4),
    ("Art. 12 Scope", 4),
    ("§ 4", 4),
    ("§ 4 Haftung", 4),
    ("§ 4. Liability of the carrier.", 4),
    ("第一编 总则", 1),
    ("第三章", 2),
    ("第三章 方法与结果", 2),
    ("第三章方法与结果", 2),
    ("第 3 章 方法", 2),
    ("第二节　实验", 3),
    ("第二部分 结论", 1),
    ("第五条 当事人应当遵循公平原则。", 4),
    ("第一百零二条　本法自公布之日起施行。", 4),
    ("一、总体要求", 5),
    ("十二、附则", 5),
    ("（二）基本原则", 6),
    ("(三) 工作目标", 6),
    ("　　一、指导思想", 5),
]

NO_HEADINGS = [
    "1. foo bar",
    "1. First item\n2. Second item\n3. Third item",
    "1. First item\n\n2. Second item\n\n3. Third item",
    "- item\n- item",
    "* item\n* item",
    "1) item",
    "#hashtag and more",
    "#!/bin/sh",
    "#include <stdio.h>",
    "    # a comment in indented code",
    "# first comment\n# second comment\nx = 1",
    "```\n# comment\n## another\n```",
    "```python\n# comment\nx = 1\n```",
    "~~~\n# comment\n~~~",
    "x = 1\n# comment\n```",
    "---\ntitle: A page\ntags: none\n---",
    "| a | b |\n|---|---|\n| 1 | 2 |",
    "a | b\n-----",
    "Name   Score\n-----  -----",
    "3.2 million people live there",
    "3.2 Million people live there",
    "3.2 GB",
    "16.5 MHz",
    "3 men walked into a bar.",
    "2024 was a good year",
    "12.5 percent of the votes",
    "3.2 Titles like this one end in a full stop.",
    "9.30 AM",
    "3.2  4.5  6.7",
    "3.2 Title ........ 17",
    "Section 3 describes the method.",
    "Chapter five was long",
    "Part of the story",
    "Book I read yesterday",
    "article 5 of the treaty",
    "Article 5 of the Treaty says that the parties shall agree.",
    "Expansion in the last quarter was\n3.2 Percent of the total",
    "第三章介绍了实验方法。",
    "第三章介绍了实验方法",
    "第二节课，老师来了",
    "第五条规定，当事人应当遵循公平原则。",
    "三分之一的人",
    "一、买菜；\n二、做饭；\n三、洗碗。",
    "一、总则\n二、分则\n三、附则",
    "一九九八年发生了洪水",
    "（一）这是一个完整的句子，说明了很多事情。",
    "> # quoted",
    "A long sentence that ends here.\n---",
    "First line of a paragraph\nsecond line of it\n---",
    "",
    "\n\n\n",
    "---",
]


@pytest.mark.parametrize(("text", "level"), HEADINGS)
def test_headings_are_found_with_their_level(text: str, level: int) -> None:
    """Every kind of heading is found at its start, with its level, before and after text."""
    overline = 14 if text.startswith("***") else 0
    assert [(h.start, h.level) for h in find_headings(text + BODY)] == [(overline, level)]
    before = "A sentence before it.\n\n"
    assert [h.level for h in find_headings(before + text + BODY)] == [level]


@pytest.mark.parametrize("text", NO_HEADINGS)
def test_what_only_looks_like_a_heading_is_none(text: str) -> None:
    """Lists, code, tables, quantities and sentences that start with a number are not headings."""
    assert find_headings(text + BODY) == []
    assert find_headings("A sentence before it.\n\n" + text + BODY) == [] or text.startswith("---\n")


def test_several_headings_of_one_text_are_in_order() -> None:
    """Each heading has its start position in the text."""
    text = "Intro.\n\n# One\n\nText.\n\nTwo\n---\n\nText.\n\n2.1 Three\n\nText."
    found = find_headings(text)
    assert [text[h.start :].split("\n", maxsplit=1)[0] for h in found] == ["# One", "Two", "2.1 Three"]
    assert [h.title for h in found] == ["One", "Two", "2.1 Three"]


def test_kinds_can_be_chosen() -> None:
    """Only the requested kinds are found."""
    text = "# One\n\nText.\n\n2.1 Two\n\nText.\n\nThree\n~~~~~\n\nText."
    assert [h.level for h in find_headings(text, ("markdown",))] == [1]
    assert [h.level for h in find_headings(text, ("numbered",))] == [3]
    assert [h.level for h in find_headings(text, ("underlined",))] == [3]


def test_a_part_that_begins_inside_code_hides_it_by_its_fences() -> None:
    """A fence that names a language opens a block, so the text before the preceding fence is code."""
    text = "# comment\n```\n\n## Heading\n\n```python\n# comment\n```\n"
    assert [h.title for h in find_headings(text)] == ["Heading"]


@given(st.text(alphabet="#=-*1.23 第章一、\n`~aA。|（）", max_size=80))
def test_any_text_gives_headings_in_order_that_begin_lines(text: str) -> None:
    """For any text, headings are in order, begin a line, and have a title."""
    found = find_headings(text)
    assert [h.start for h in found] == sorted({h.start for h in found})
    for heading in found:
        assert heading.start == 0 or text[heading.start - 1] == "\n"
        assert heading.title.strip()


def test_markdown_parser_sections() -> None:
    """Chunks of MarkdownNodeParser open with their heading, and so do the first parts when split again."""
    text = "# Top\n\nText.\n\n## Sub\n\n" + "A sentence of the sub-section. " * 40 + "\n\n# Other\n\nText."
    nodes = MarkdownNodeParser().get_nodes_from_documents([Document(text=text)])
    parts = SentenceSplitter(chunk_size=60, chunk_overlap=0)(nodes)
    sections = Sections()
    borders = [sections.border(a, b) for a, b in itertools.pairwise(parts)]
    assert borders[0] == 2
    assert borders[-1] == 1
    assert set(borders[1:-1]) == {None}


def test_html_tags_are_headings() -> None:
    """HTMLNodeParser's tag h1 to h6 marks a heading with its level, other tags mark none."""
    parsed = (("h1", "Top"), ("p", "Text one."), ("h2", "Sub"), ("p", "Text two."))
    nodes = [TextNode(text=text, metadata={"tag": tag}) for tag, text in parsed]
    sections = Sections()
    assert [[h.level for h in sections.headings(node)] for node in nodes] == [[1], [], [2], []]
    assert [sections.border(a, b) for a, b in itertools.pairwise(nodes)] == [None, 2, None]


def test_titles_of_unstructured_are_headings() -> None:
    """The category Title marks a heading, one level deeper for each category_depth."""
    title = TextNode(text="Intro", metadata={"category": "Title"})
    deep = TextNode(text="Detail", metadata={"category": "Title", "category_depth": 2})
    text = TextNode(text="Text.", metadata={"category": "NarrativeText"})
    sections = Sections()
    assert sections.opening(title) == Heading(0, 1, "Intro")
    assert sections.opening(deep) == Heading(0, 3, "Detail")
    assert sections.opening(text) is None


def _docling(*headings: str) -> TextNode:
    return TextNode(text="Text.", metadata={"headings": list(headings)})


def test_docling_headings_part_sections_by_where_their_paths_differ() -> None:
    """A border has the level at which two title paths diverge; equal paths have none."""
    sections = Sections()
    assert sections.border(_docling("A", "1"), _docling("A", "1")) is None
    assert sections.border(_docling("A", "1"), _docling("A", "2")) == 2
    assert sections.border(_docling("A", "1"), _docling("B")) == 1
    assert sections.border(_docling("A"), _docling("A", "1")) == 2
    assert sections.level(_docling("A", "1")) == 2


def test_header_path_parts_chunks_whose_heading_is_gone() -> None:
    """A change of path is a border, even if the text has no heading."""
    top, sub = (TextNode(text="Text.", metadata={"header_path": path}) for path in ("/", "/A/"))
    assert Sections().border(top, sub) is not None
    assert Sections().border(sub, sub) is None
    assert Sections().level(sub) is None


def test_section_keys_are_a_parameter() -> None:
    """Other keys name sections too, several keys one title each."""
    sections = Sections(section_keys=("Header 1", "Header 2"))
    one = TextNode(text="Text.", metadata={"Header 1": "A", "Header 2": "x"})
    two = TextNode(text="Text.", metadata={"Header 1": "A", "Header 2": "y"})
    assert sections.border(one, two) == 2
    assert Sections(section_keys=()).border(one, two) is None


def test_a_function_finds_headings_instead() -> None:
    """A finder may return a level, headings or nothing, and replaces all other detection."""
    shout = Sections(finder=lambda node: 1 if node.get_content().isupper() else None)
    assert shout.opening(TextNode(text="LOUD")) == Heading(0, 1, "LOUD")
    assert shout.headings(TextNode(text="# Quiet")) == []
    own = Sections(finder=lambda node: [Heading(3, 2, "x")])
    assert own.opening(TextNode(text="abcx")) is None
    assert own.headings(TextNode(text="abcx")) == [Heading(3, 2, "x")]


def test_a_heading_in_the_middle_does_not_open_the_chunk() -> None:
    """A chunk opens with a heading only if nothing but white space precedes it."""
    sections = Sections()
    assert sections.opening(TextNode(text="\n\n## Sub\n\nText.")) is not None
    middle = TextNode(text="The end.\n\n## Sub\n\nText.")
    assert sections.opening(middle) is None
    assert [h.start for h in sections.headings(middle)] == [10]


def test_heading_path_leaves_out_the_heading_at_the_place_and_those_it_ends() -> None:
    """A heading ends those of its own and deeper levels, and is not above itself."""
    headings = [Heading(0, 1, "h1"), Heading(10, 2, "h2"), Heading(20, 3, "h3"), Heading(30, 2, "later h2")]
    assert heading_path(headings, 20) == ("h1", "h2")
    assert heading_path(headings, 25) == ("h1", "h2", "h3")
    assert heading_path(headings, 30) == ("h1",)
    assert heading_path(headings, 40) == ("h1", "later h2")
    assert heading_path([], 5) == ()
