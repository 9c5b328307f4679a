"""Formulas as MathML, which browsers show by themselves: a page asks nothing of any network."""

from typing import Any

from docutils import nodes
from latex2mathml.converter import convert
from sphinx.application import Sphinx


def _inline(self: Any, node: nodes.math) -> None:
    self.body.append(convert(node.astext()))
    raise nodes.SkipNode


def _display(self: Any, node: nodes.math_block) -> None:
    self.body.append(self.starttag(node, "div", CLASS="formula"))
    self.body.append(convert(_aligned(node.astext()), display="block"))
    self.body.append("</div>\n")
    raise nodes.SkipNode


def _aligned(latex: str) -> str:
    """Several lines, or columns to align, need an environment of their own."""
    latex = latex.strip()
    if (r"\\" in latex or "&" in latex) and r"\begin{" not in latex:
        return rf"\begin{{aligned}}{latex}\end{{aligned}}"
    return latex


def setup(app: Sphinx) -> dict[str, Any]:
    """Register the renderer."""
    app.add_html_math_renderer("mathml", (_inline, None), (_display, None))
    return {"version": "1", "parallel_read_safe": True, "parallel_write_safe": True}
