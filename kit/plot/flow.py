"""The shape of the operation in view as a flow chart; it changes when the operation or who has called it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.plot.diagram import Diagram, flow_script, quoted
from kit.plot.exchange import Exchange, Gathering, Parcel, exchange
from kit.plot.markup import size_text
from kit.plot.messages import messages_svg, messages_words
from kit.plot.moment import position_at
from kit.plot.palette import INK, UNKNOWN, rank_color, text_on
from kit.plot.style import standalone_style
from kit.trace.text import canonical

if TYPE_CHECKING:
    from mermaid.flowchart import Link, Node

    from kit.trace.trace import Trace


def flowchart(trace: Trace, position: int) -> Diagram:
    """Ranks, what they hand over and to whom, at a position: dotted is not delivered, or not called yet."""
    world = len(position_at(trace, position).states)
    text = messages_words(trace, position)
    alone = messages_svg(trace, position).replace(">", f"><style>{standalone_style()}</style>", 1)
    return Diagram(_script(world, exchange(trace, position), text), alone, text)


def _script(world: int, seen: Exchange, text: str) -> str:
    styles = {_rank_style(rank) for rank in range(world)}
    styles.add(f"classDef hub fill:#e7e9ec,stroke:{UNKNOWN},color:{INK}")
    classes: set[str] = set()
    nodes: list[Node] = []
    links: list[Link] = []
    if seen.gatherings:
        for number, gathering in enumerate(seen.gatherings):
            _add_gathering(number, gathering, nodes, links, classes)
        return flow_script(nodes, links, "LR", "operation in view", text, styles, classes)
    _add_messages(world, seen.parcels, nodes, links, classes)
    return flow_script(nodes, links, "LR", "messages of this exchange", text, styles, classes)


def _add_messages(
    world: int, parcels: tuple[Parcel, ...], nodes: list[Node], links: list[Link], classes: set[str]
) -> None:
    """Ranks at the left hand over, ranks at the right get."""
    from mermaid.flowchart import Link

    left = [_rank_node("r", rank, classes) for rank in range(world)]
    right = {rank: _rank_node("t", rank, classes) for rank in sorted({parcel.destination for parcel in parcels})}
    nodes += [*left, *right.values()]
    for parcel in parcels:
        label = quoted(", ".join(part for part in (parcel.label, size_text(parcel.nbytes)) if part))
        shape = "normal" if parcel.delivered else "dotted"
        links.append(Link(left[parcel.source], right[parcel.destination], shape, message=label))


def _add_gathering(number: int, g: Gathering, nodes: list[Node], links: list[Link], classes: set[str]) -> None:
    """Ranks that give at the left, the operation, ranks that get at the right."""
    from mermaid.flowchart import Link, Node

    name = canonical(g.name)
    gives = [g.root] if name in ("broadcast", "scatter") and g.root is not None else list(g.ranks)
    gets = [g.root] if name in ("reduce", "gather") and g.root is not None else list(g.ranks)
    hub = Node(f"op{number}", quoted(_title(g)), "stadium-shape")
    classes.add(f"class op{number} hub")
    left = [_rank_node(f"g{number}r", rank, classes) for rank in gives]
    right = [_rank_node(f"t{number}r", rank, classes) for rank in gets]
    nodes += [*left, hub, *right]
    links += [Link(node, hub, "normal" if r in g.arrived else "dotted") for r, node in zip(gives, left, strict=True)]
    links += [Link(hub, node, "normal" if g.done else "dotted") for node in right]


def _rank_node(prefix: str, rank: int, classes: set[str]) -> Node:
    from mermaid.flowchart import Node

    classes.add(f"class {prefix}{rank} rank{rank}")
    return Node(f"{prefix}{rank}", f"rank {rank}", "round-edge")


def _title(g: Gathering) -> str:
    of = f" of {g.label}" if g.label else ""
    return f"{g.name}{of}, {size_text(g.nbytes)}" + (f", {g.reduce}" if g.reduce else "")


def _rank_style(rank: int) -> str:
    color = rank_color(rank)
    return f"classDef rank{rank} fill:{color},stroke:{color},color:{text_on(color)}"
