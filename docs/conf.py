"""Configuration of the documentation site."""

import re
from importlib.metadata import version as installed_version
from pathlib import Path, PurePosixPath
from posixpath import normpath

from sphinx.util.docutils import SphinxDirective

import llama_index_ext_ctxaug as package

project = "llama-index-ext-ctxaug"
author = "The llama-index-ext-ctxaug authors"
version = release = installed_version(project)

extensions = ["myst_parser", "sphinx.ext.autodoc", "sphinx.ext.napoleon"]
html_theme = "furo"
html_title = "ctxaug"
html_static_path: list[str] = []
exclude_patterns = ["_build"]

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_class_signature = "separated"
autodoc_default_options = {"members": True, "show-inheritance": True}

_FENCE = re.compile(r"^(\s*)```(\w*)\s*$")
_LITERAL = re.compile(r"(?<!`)`([^`\n]+)`(?!`)")


def docstring_to_rst(app, what, name, obj, options, lines):
    """Turn the Markdown of docstrings, fenced code and code in backticks, into reStructuredText."""
    result, inside = [], False
    for line in lines:
        if fence := _FENCE.match(line):
            inside = not inside
            result += [f"{fence[1]}.. code-block:: {fence[2] or 'text'}", ""] if inside else [""]
        else:
            result.append(
                f"   {line}" if inside and line else line if inside else _LITERAL.sub(r"``\1``", line)
            )
    lines[:] = result


def skip_tuple_fields(app, what, name, obj, skip, options):
    """Leave out the fields of named tuples, which the docstring of the class describes."""
    return True if type(obj).__name__ == "_tuplegetter" else None


class Parameters(SphinxDirective):
    """A table of the parameters that a class adds to those of every augmenter, made from its fields."""

    required_arguments = 1

    def run(self):
        """Return the table, parsed from Markdown."""
        fields = getattr(package, self.arguments[0]).model_fields
        common = package.ContextAugmenter.model_fields
        rows = ["| parameter | meaning | default |", "|---|---|---|"]
        for name, field in fields.items():
            if name in common and field.default == common[name].default:
                continue
            value = "required" if field.is_required() else f"`{field.default!r}`"
            if name.endswith("_tmpl") or field.default_factory:
                value = "see the class"
            rows.append(f"| `{name}` | {field.description} | {value} |")
        return self.parse_text_to_nodes("\n".join(rows))


_INCLUDE = re.compile(r"^```{include} \.\./([\w.-]+)\n```$", re.MULTILINE)
_FILE_LINK = re.compile(r"\]\((?!https?://|#|mailto:)([^)\s#]+)((?:#[^)\s]*)?)\)")
_REPOSITORY = "https://github.com/llama-index-ext/llama-index-ext-ctxaug/blob/main/"


def link_files(app, docname, source):
    """Include the papers of the project, and turn links to other files into links to the repository."""
    docs = Path(app.srcdir)
    folder = PurePosixPath("docs", docname).parent

    def include(match):
        nonlocal folder
        folder = PurePosixPath()
        return (docs.parent / match[1]).read_text("utf-8")

    def link(match):
        target = PurePosixPath(normpath(folder / match[1]))
        if target.suffix == ".png":
            return match[0]
        if target.parts[0] == "docs" and target.suffix == ".md":
            return f"](/{target.relative_to('docs')}{match[2]})"
        if (paper := docs / f"{target.stem.lower()}.md").exists() and len(target.parts) == 1:
            return f"](/{paper.name}{match[2]})"
        return f"]({_REPOSITORY}{target}{match[2]})"

    source[0] = _FILE_LINK.sub(link, _INCLUDE.sub(include, source[0]))


def setup(app):
    """Connect the conversion before that of Google's docstrings."""
    app.add_directive("parameters", Parameters)
    app.connect("source-read", link_files)
    app.connect("autodoc-skip-member", skip_tuple_fields)
    app.connect("autodoc-process-docstring", docstring_to_rst, priority=100)
