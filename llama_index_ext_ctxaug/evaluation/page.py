"""Self-contained HTML pages: no script, nothing loaded from elsewhere."""

from __future__ import annotations

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape

from llama_index_ext_ctxaug.evaluation.escaping import without_controls
from llama_index_ext_ctxaug.evaluation.tables import to_text

# Autoescaping quotes markup; the Content-Security-Policy of the template is a second line of defense.
_environment = Environment(
    loader=PackageLoader("llama_index_ext_ctxaug.evaluation"),
    autoescape=True,
    finalize=lambda value: value if isinstance(value, Markup) else without_controls(value),
    lstrip_blocks=True,
    trim_blocks=True,
    undefined=StrictUndefined,
)
_environment.filters["text"] = to_text


def render(template: str, **values: object) -> str:
    """Render a template of the folder `templates`; every value is escaped."""
    return _environment.get_template(template).render(**values)


def in_notebook(page: str) -> str:
    """Return a frame around a page, which keeps its style apart from the notebook's."""
    return (
        f'<iframe sandbox="" srcdoc="{escape(page)}" '
        'style="width:100%;height:36rem;border:0;background:Canvas"></iframe>'
    )
