"""Pictures of a trace: pure functions of (trace, position), without widgets and without a cluster.

A picture that has axes is described by a `Figure`, and drawn by `svg` or as a `BokehFigure`. HTML and SVG need
`stylesheet()` on the page once; Bokeh and mermaid-py are imported by the functions that use them.
"""
