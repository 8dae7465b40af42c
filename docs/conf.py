"""Configuration of the documentation site."""

import re
from importlib.metadata import version as installed_version

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
suppress_warnings = ["myst.xref_missing"]  # links from included files to files outside of the site

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


def setup(app):
    """Connect the conversion before that of Google's docstrings."""
    app.connect("autodoc-skip-member", skip_tuple_fields)
    app.connect("autodoc-process-docstring", docstring_to_rst, priority=100)
