"""Reading what a view wrote: every view's HTML and SVG is well-formed XML, so a test can ask it questions."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from xml.etree import ElementTree as xml

from kit.plot.messages import messages_html
from kit.plot.render_svg import html
from kit.plot.source import source_html
from kit.plot.tensors import tensors_html
from kit.plot.timeline import timeline_figure
from kit.plot.words import words_html
from kit.trace.trace import Trace

VIEWS: dict[str, Callable[[Trace, int], str]] = {
    "source": source_html,
    "tensors": tensors_html,
    "messages": messages_html,
    "time": lambda trace, position: html(timeline_figure(trace, position)),
    "words": words_html,
}


def parse(markup: str) -> xml.Element:
    """The outermost element; raises ParseError where a view forgot to close or escape something."""
    return xml.fromstring(markup)


def classes(element: xml.Element) -> set[str]:
    return set(element.get("class", "").split())


def find(root: xml.Element, name: str) -> list[xml.Element]:
    """All elements of a class, in document order."""
    return [element for element in root.iter() if name in classes(element)]


def text(element: xml.Element) -> str:
    return "".join(element.itertext())


def tag(element: xml.Element) -> str:
    return element.tag.rpartition("}")[2]


def sizes(markup: str) -> list[str]:
    """Every height and width that a style or an SVG's frame fixes, in order."""
    found = re.findall(r'style="([^"]*)"', markup) + re.findall(r'<svg[^>]* (width="[\d%]+" height="\d+")', markup)
    return [size for size in found if "opacity" not in size]


def rank_of(element: xml.Element) -> int | None:
    """The rank whose colour an element wears."""
    for name in classes(element):
        if re.fullmatch(r"ls-r\d+", name):
            return int(name[4:])
    return None


def rows(root: xml.Element) -> Iterator[list[xml.Element]]:
    """The cells of each rank's row in a picture of tensors."""
    for row in find(root, "ls-rank-row"):
        yield [cell for cell in row if tag(cell) == "td"]
