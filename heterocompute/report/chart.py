"""A chart: dots and curves on two axes, with names. This file writes it as SVG, plot.py with matplotlib.

The content and the axes are stated once: the scatter of a study, the roof of a device, densities, pictures of docs/.
"""

from __future__ import annotations

import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from .labels import Label, place, text_width
from .palette import FAMILIES, GREY, Mark
from .scale import Scale

NAMESPACE = "http://www.w3.org/2000/svg"  # a name, never fetched
DASHES = {"dashed": "5 4", "dotted": "2 3"}
FONT = "system-ui, -apple-system, Segoe UI, Helvetica, Arial, sans-serif"


def picture(width: float, height: float, title: str, lines: Sequence[str], size: float = 13) -> str:
    """Return a whole SVG file of these parts, in the font and grey of all pictures."""
    head = (
        f'<svg xmlns="{NAMESPACE}" viewBox="0 0 {width} {height}" width="{width}" height="{height}" '
        f'font-family="{FONT}" font-size="{size}" fill="{GREY}">'
    )
    return "\n".join([head, f"<title>{title}</title>", *lines, "</svg>", ""])


@dataclass(frozen=True)
class Dot:
    """A dot: its position on the axes, mark, name, and how it differs from others of its family."""

    x: float
    y: float
    mark: Mark
    name: str = ""
    kind: str = ""  # overlapping dots of one kind get one name
    row: int | None = None  # row of the page's table
    hollow: bool = False
    inner: bool = False  # a point inside
    ring: bool = False
    large: bool = False
    faint: bool = False  # overlapping dots stay visible
    hint: str = ""  # the tooltip of the dot


class Curve(NamedTuple):
    """A line through points on the axes, or with a large width a bar; names do not cross it if it is a rail."""

    points: Sequence[tuple[float, float]]
    color: str = GREY
    width: float = 1.5
    style: Literal["solid", "dashed", "dotted"] = "solid"
    is_rail: bool = True
    label: str = ""  # in the legend
    opacity: float = 1.0
    hint: str = ""  # the tooltip


class Key(NamedTuple):
    """An entry of a legend: a mark as a dot shows it, perhaps on a piece of its curve."""

    mark: Mark
    words: str
    hollow: bool = False
    ring: bool = False
    inner: bool = False
    style: Literal["", "solid", "dashed"] = ""  # of the curve


@dataclass
class Chart:
    """A frame of a size with two axes and their content; lengths are pixels, y grows downwards.

    Parameters
    ----------
    x, y : Scale
    width, height : int
    x_title, y_title : str
        Written below, and above the left end.
    size : float, optional
        Of the letters.
    standalone : bool, optional
        A file of its own, with its colours in it; else the page's styles colour words and lines.
    title : str, optional
        Alternative text.
    heading : str, optional
        Written above the frame.
    dots : sequence of Dot, optional
        The later ones are drawn over the earlier ones.
    named : sequence of int, optional
        Which of them bear their names, the most important first; names without a place are left out.
    front : sequence of (float, float), optional
        Corners of a Pareto front, drawn as stairs.
    curves : sequence of Curve, optional
    keys : sequence of Key, optional
        The legend. A page and a file write it outside of the frame.
    """

    x: Scale
    y: Scale
    width: int
    height: int
    x_title: str
    y_title: str
    size: float = 12.0
    standalone: bool = False
    title: str = ""
    heading: str = ""
    dots: Sequence[Dot] = ()
    named: Sequence[int] = ()
    front: Sequence[tuple[float, float]] = ()
    curves: Sequence[Curve] = ()
    keys: Sequence[Key] = ()
    top: float = 30.0
    bottom: float = 46.0
    right: float = 14.0
    left: float = field(init=False)

    def __post_init__(self) -> None:
        self.left = 14 + max((text_width(text, self.size) for _, text in self.y.ticks), default=20.0)

    def at(self, x: float, y: float) -> tuple[float, float]:
        """Return the pixel of a position on the axes."""
        return self.across(x), self.down(y)

    def across(self, x: float) -> float:
        return round(self.left + self.x.place(x) * (self.width - self.left - self.right), 1)

    def down(self, y: float) -> float:
        return round(self.height - self.bottom - self.y.place(y) * (self.height - self.top - self.bottom), 1)

    @property
    def frame(self) -> tuple[float, float, float, float]:
        return self.left, self.top, self.width - self.right, self.height - self.bottom

    def axes(self) -> list[str]:
        """Return grid lines, their values and the titles."""
        left, top, right, bottom = self.frame
        lines, end = [], -1e9
        for value, words in self.x.ticks:
            x, half = self.across(value), text_width(words, self.size) / 2
            if not left - 1 <= x <= right + 1:
                continue
            lines.append(line((x, top, x, bottom), "grid", self.standalone))
            if x - half > end:
                end = x + half + 4
                lines.append(text(min(x, self.width - half), bottom + 1.5 * self.size, words, "middle"))
        last = 1e9
        for value, words in self.y.ticks:
            y = self.down(value)
            if top - 1 <= y <= bottom + 1 and abs(last - y) > self.size:
                last = y
                lines.append(line((left, y, right, y), "grid", self.standalone))
                lines.append(text(left - 8, y + 0.35 * self.size, words, "end"))
        lines.append(text((left + right) / 2, self.height - 6, self.x_title, "middle"))
        if self.heading:
            lines.append(text(left, top - 36, self.heading, weight=600))
        if self.y_title:
            lines.append(text(4, top - 14, self.y_title, weight=400 if self.heading else 600))
        return lines

    def legend(self) -> list[str]:
        """Return the marks and words of the keys in a row above the frame."""
        x, y, lines = self.left, self.top - 17, list[str]()
        for key in self.keys:
            lines += [f'<path d="{outline(key.mark, x + 5, y - 4, 5)}" fill="{key.mark.color}"/>']
            lines += [text(x + 15, y, key.words)]
            x += 30 + text_width(key.words, self.size)
        return lines

    def svg(self, under: Sequence[str] = (), rails: Sequence[tuple[float, float, float, float]] = ()) -> str:
        """Return the picture."""
        return "".join([self.head(), *self.inside(under, rails), "</svg>"])

    def inside(
        self,
        under: Sequence[str] = (),
        rails: Sequence[tuple[float, float, float, float]] = (),
        leaders: bool = True,
        radius: float = 4.5,
    ) -> list[str]:
        """Return axes, curves, dots and names.

        Parameters
        ----------
        under : sequence of str, optional
            SVG below the dots.
        rails : sequence of tuple, optional
            Further lines in pixels that no name covers.
        leaders : bool, optional
            Whether names may stand away from their dots, with a line.
        radius : float, optional
            Of a dot.
        """
        dots, named, front = self.dots, self.named, self.front
        places = self.places(dots, radius)
        box = (self.left + 1, self.top + 1, self.width - 2.0, self.height - self.bottom - 1)
        stairs = steps([self.at(*corner) for corner in front], self.frame[2])
        wanted = [(i, dots[i].name, dots[i].kind) for i in named]
        parts, rails = self.axes(), [*stairs, *rails]
        for curve in self.curves:
            corners = [self.at(*point) for point in curve.points]
            rails += [(*corners[i], *corners[i + 1]) for i in range(len(corners) - 1) if curve.is_rail]
            dash = "" if curve.style == "solid" else f' stroke-dasharray="{DASHES[curve.style]}"'
            points = " ".join("{:.5g},{:.5g}".format(*corner) for corner in corners)
            look = f'stroke="{curve.color}" stroke-width="{curve.width:g}"{dash}'
            look += "" if curve.opacity == 1 else f' stroke-opacity="{curve.opacity:g}"'
            parts.append(f'<polyline points="{points}" fill="none" {look}{hinted(curve.hint, "polyline")}')
        found = place(wanted, places, box, self.size, leaders, rails)
        parts += under
        if stairs:
            path = "M{:.4g} {:.4g}".format(*stairs[0][:2]) + "".join(f"L{x:.4g} {y:.4g}" for *_, x, y in stairs)
            color = FAMILIES["codebook"].color if self.standalone else "var(--accent)"
            look = f'fill="none" stroke="{color}" stroke-width="1.5" stroke-dasharray="5 4"'
            parts.append(f'<path d="{path}" {look}/>')
        parts += [
            shape(dot, x, y, r - 3 * dot.ring, self.standalone) for dot, (x, y, r) in zip(dots, places, strict=True)
        ]
        return [*parts, *(written(label, self.standalone) for label in found)]

    def places(self, dots: Sequence[Dot], radius: float = 4.5) -> np.ndarray:
        """Return x, y and radius of every dot in pixels."""
        found = [(*self.at(dot.x, dot.y), radius * (1.35 if dot.large else 1.0) + 3 * dot.ring) for dot in dots]
        return np.array(found, dtype=np.float64).reshape(-1, 3)

    def head(self) -> str:
        """Return the opening of the picture."""
        own = ""
        if self.standalone:
            own = f' xmlns="{NAMESPACE}" width="{self.width}" height="{self.height}" font-family="{FONT}"'
        words = f"<title>{html.escape(self.title)}</title>" if self.standalone and self.title else ""
        more = f' aria-label="{html.escape(self.title)}"' if self.title else ""
        return (
            f'<svg viewBox="0 0 {self.width} {self.height}"{own} role="img"{more} '
            f'font-size="{self.size:g}" fill="{GREY}">{words}'
        )


def text(x: float, y: float, words: str, anchor: str = "start", weight: int = 400, more: str = "") -> str:
    """Return a line of words."""
    kind = "" if anchor == "start" else f' text-anchor="{anchor}"'
    bold = "" if weight == 400 else f' font-weight="{weight}"'
    return f'<text x="{x:.4g}" y="{y:.4g}"{kind}{bold}{more}>{html.escape(words)}</text>'


def line(ends: tuple[float, float, float, float], kind: str, standalone: bool) -> str:
    """Return a line, with a class of the page or in grey."""
    x1, y1, x2, y2 = ends
    look = f'stroke="{GREY}" stroke-opacity="{0.25 if kind == "grid" else 0.8}"' if standalone else f'class="{kind}"'
    return f'<path d="M{x1:.4g} {y1:.4g}L{x2:.4g} {y2:.4g}" fill="none" {look}/>'


def steps(corners: Sequence[tuple[float, float]], right: float) -> list[tuple[float, float, float, float]]:
    """Return the lines of a staircase through the corners, continued to the right end."""
    found = []
    for i, (x, y) in enumerate(corners):
        last = i + 1 == len(corners)
        a, b = (right, y) if last else corners[i + 1]
        found += [(x, y, a, y)] if last else [(x, y, a, y), (a, y, a, b)]
    return found


def outline(mark: Mark, x: float, y: float, radius: float) -> str:
    """Return the outline of a mark; a polygon is slightly larger, so that it looks as large as the circle."""
    if not mark.corners:
        r = f"{radius:.3g}"
        return f"M{x - radius:.5g} {y:.5g}a{r} {r} 0 1 0 {2 * radius:.3g} 0a{r} {r} 0 1 0 {-2 * radius:.3g} 0z"
    grown = 1.18 * radius
    corners = [(x + grown * a, y - grown * b) for a, b in mark.corners]
    return "M" + "L".join(f"{a:.1f} {b:.1f}" for a, b in corners) + "z"


def shape(dot: Dot, x: float, y: float, radius: float, standalone: bool) -> str:
    """Return one dot: its mark, filled or hollow, perhaps with a point inside or a ring around it."""
    color = dot.mark.color
    row = "" if dot.row is None else f' data-i="{dot.row}"'
    paper = "none" if standalone else "var(--card)"
    fill = f'fill="{paper}" stroke="{color}" stroke-width="2"' if dot.hollow else f'fill="{color}"'
    fill += ' opacity="0.7"' if dot.faint else ""
    found = f'<path class="dot" d="{outline(dot.mark, x, y, radius)}" {fill}{row}{hinted(dot.hint, "path")}'
    if dot.ring:
        found += f'<circle cx="{x:.5g}" cy="{y:.5g}" r="{radius + 3:.3g}" fill="none" stroke="{color}"/>'
    if dot.inner:
        inside = color if dot.hollow else "var(--card)" if not standalone else "#fff"
        found += f'<circle cx="{x:.5g}" cy="{y:.5g}" r="1.5" fill="{inside}"/>'
    return found


def hinted(hint: str, element: str) -> str:
    """Return the end of an element, with its tooltip."""
    return f"><title>{html.escape(hint)}</title></{element}>" if hint else "/>"


def written(label: Label, standalone: bool) -> str:
    """Return a name with the line that leads to it."""
    found = line(label.leader, "leader", standalone) if label.leader else ""
    look = ' class="label"' if not standalone else ""
    return found + text(label.x, label.y, label.text, more=look)
