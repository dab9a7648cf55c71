"""Figures as SVG inside a page, in the page's colours: light, dark or on paper."""

from __future__ import annotations

import io
import re
from html import escape
from typing import TYPE_CHECKING

from nova_core.plotting import parts

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Names of a figure's colours in the page's style sheet.
COLOURS = {
    parts.INK: "ink",
    parts.GREY: "grey",
    parts.PALE: "pale",
    parts.BLUE: "blue",
    parts.VERMILLION: "vermillion",
    parts.GREEN: "green",
    parts.ORANGE: "orange",
    parts.PURPLE: "purple",
    parts.SKY: "sky",
    "#ffffff": "surface",
}
PIXELS_PER_INCH = 102
_BY_COLOUR = {colour.lower(): name for colour, name in COLOURS.items()}
_COLOUR = re.compile("|".join(map(re.escape, _BY_COLOUR)), re.IGNORECASE)


def inline_svg(figure: Figure, prefix: str, label: str) -> str:
    """An ``<svg>`` element.

    Args:
        figure: what is drawn.
        prefix: of all ids in it, which have to be unique in a page.
        label: what it shows, for people who cannot see it.
    """
    from matplotlib import rc_context

    text = io.StringIO()
    with rc_context({"svg.hashsalt": "nova", "font.family": "DejaVu Sans"}):
        figure.savefig(text, format="svg", transparent=True, metadata={"Date": None})
    svg = text.getvalue()
    svg = svg[svg.index("<svg") :]
    svg = re.sub(r"<metadata>.*?</metadata>", "", svg, count=1, flags=re.DOTALL)
    svg = re.sub(r"<!--.*?-->", "", svg, flags=re.DOTALL)
    svg = re.sub(r'\bid="', f'id="{prefix}-', svg)
    svg = re.sub(r'(url\(#|href="#)', rf"\g<1>{prefix}-", svg)
    svg = _COLOUR.sub(lambda match: f"var(--{_BY_COLOUR[match[0].lower()]})", svg)
    # Colours given as attributes take no variables; matplotlib writes styles.
    width = PIXELS_PER_INCH * figure.get_figwidth()
    opening = (
        f'<svg class="figure" style="--natural: {width:.0f}px" role="img" '
        f'aria-label="{escape(label, quote=True)}"'
    )
    svg = svg.replace("<svg", opening, 1)
    return re.sub(r"\s*\n\s*", "\n", svg)
