"""Pictures of a trace: pure functions of (trace, position), without widgets and without a cluster.

A picture that has axes is described by a `Figure`, and drawn by `svg` or as a `BokehFigure`. HTML and SVG need
`stylesheet()` on the page once; Bokeh and mermaid-py are imported by the functions that use them.
"""

from kit.plot.bandwidth import bandwidth_figure
from kit.plot.diagram import Diagram
from kit.plot.figure import Figure
from kit.plot.flow import flowchart
from kit.plot.memory import memory_figure
from kit.plot.messages import messages_caption, messages_height, messages_html, messages_svg, messages_words
from kit.plot.render_bokeh import BokehFigure
from kit.plot.render_svg import html, standalone, svg
from kit.plot.source import source_height, source_html
from kit.plot.style import stylesheet
from kit.plot.tensors import tensor_names, tensors_height, tensors_html
from kit.plot.timeline import timeline_figure
from kit.plot.traffic import traffic_figure
from kit.plot.words import words_html, words_text

__all__ = [
    "BokehFigure",
    "Diagram",
    "Figure",
    "bandwidth_figure",
    "flowchart",
    "html",
    "memory_figure",
    "messages_caption",
    "messages_height",
    "messages_html",
    "messages_svg",
    "messages_words",
    "source_height",
    "source_html",
    "standalone",
    "stylesheet",
    "svg",
    "tensor_names",
    "tensors_height",
    "tensors_html",
    "timeline_figure",
    "traffic_figure",
    "words_html",
    "words_text",
]
