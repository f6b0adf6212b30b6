"""What Mermaid 11 asks of a flow chart, checked without a browser."""

from __future__ import annotations

import re

from kit.plot.diagram import NOBODY
from kit.plot.palette import RANKS, UNKNOWN, contrast

PAGES = "#ffffff", "#111111"  # JupyterLab's, light and dark


def check_flow_chart(script: str) -> None:
    """The rules that Mermaid 11 holds a flow chart to, as far as mermaid-py is known to break them."""
    lines = [line.strip() for line in script.splitlines()]
    assert lines[0].startswith("%%{init:") and lines[1] == "flowchart LR"
    assert "---" not in lines, "a title block breaks on a colon"
    identifiers = re.findall(r"^(?:subgraph )?([a-z][a-z0-9]*) ?(?=[\[(])", "\n".join(lines), flags=re.MULTILINE)
    assert len(identifiers) == len(set(identifiers)) and not {"end", "graph", "class"} & set(identifiers)
    assert all(name == name.lower() for name in identifiers)
    links = [line for line in lines if re.search(r" (-->|-\.->|~~~)", line)]
    for line in links:
        match = re.fullmatch(r'([a-z]\w*) (-->|-\.->|~~~)(\|"[^"<>|`]*"\|)? ([a-z]\w*)', line)
        assert match, line
        assert {match[1], match[4]} <= set(identifiers)
    assert not [line for line in lines if re.search(r" (--|==|-\.-) ", line)]
    styles = [line for line in lines if line.startswith("classDef")]
    applied = [line for line in lines if line.startswith("class ")]
    assert styles == sorted(set(styles)) and applied == sorted(set(applied))
    for line in styles:
        check_colours(dict(part.split(":") for part in line.split(maxsplit=2)[2].split(",")))
    defined = {line.split()[1] for line in styles}
    assert {line.split()[2] for line in applied} <= defined
    assert {line.split()[1] for line in applied} <= set(identifiers)
    coloured = re.search(r"^linkStyle ([\d,]+) ", "\n".join(lines), flags=re.MULTILINE)
    drawn = [str(i) for i, line in enumerate(links) if "~~~" not in line]
    assert (coloured[1].split(",") if coloured else []) == drawn
    assert lines[2].startswith("accTitle:") and lines[3].startswith("accDescr:")
    for label in re.findall(r'"([^"]*)"', "\n".join(lines[4:])):
        assert not set(label) & set("<>`")
    assert script.count("subgraph") == lines.count("end")


def check_colours(style: dict[str, str]) -> None:
    """A chart stays as it was drawn when a reader turns the theme, so a box may count on neither page."""
    fill, ink = style["fill"], style["color"]
    assert fill in (*RANKS, NOBODY, "none")
    assert min(contrast(NOBODY, page) for page in PAGES) > 3
    if fill == "none" or float(style.get("fill-opacity", 1)) < 1:
        assert ink == UNKNOWN and min(contrast(ink, page) for page in PAGES) > 4
    else:
        assert contrast(ink, fill) >= 4.5
