"""The shape of the operation in view as a flow chart; it changes when the operation or who has called it changes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kit.plot.diagram import NOBODYS_LOOK, Diagram, FlowScript, quoted
from kit.plot.exchange import Exchange, Gathering, Parcel, exchange
from kit.plot.markup import size_text
from kit.plot.messages import messages_svg, messages_words
from kit.plot.moment import position_at
from kit.plot.style import standalone_style
from kit.trace.text import canonical

if TYPE_CHECKING:
    from kit.trace.trace import Trace


def flowchart(trace: Trace, position: int) -> Diagram:
    """Ranks, what they hand over and to whom, at a position: dotted is not delivered, or not called yet."""
    world = len(position_at(trace, position).states)
    text = messages_words(trace, position)
    alone = messages_svg(trace, position).replace(">", f"><style>{standalone_style()}</style>", 1)
    return Diagram(_script(world, exchange(trace, position), text), alone, text)


def _script(world: int, seen: Exchange, text: str) -> str:
    chart = FlowScript()
    if seen.gatherings:
        for number, gathering in enumerate(seen.gatherings):
            _add_gathering(chart, number, gathering)
        return chart.script("operation in view", text)
    _add_messages(chart, world, seen.parcels)
    return chart.script("messages of this exchange", text)


def _add_messages(chart: FlowScript, world: int, parcels: tuple[Parcel, ...]) -> None:
    """Ranks at the left hand over, ranks at the right get."""
    left = [chart.rank(f"r{rank}", rank) for rank in range(world)]
    right = {rank: chart.rank(f"t{rank}", rank) for rank in sorted({parcel.destination for parcel in parcels})}
    chart.nodes += [*left, *right.values()]
    for parcel in parcels:
        label = quoted(", ".join(part for part in (parcel.label, size_text(parcel.nbytes)) if part))
        shape = "normal" if parcel.delivered else "dotted"
        chart.link(left[parcel.source], right[parcel.destination], shape, label)


def _add_gathering(chart: FlowScript, number: int, g: Gathering) -> None:
    """Ranks that give at the left, the operation, ranks that get at the right."""
    name = canonical(g.name)
    gives = [g.root] if name in ("broadcast", "scatter") and g.root is not None else list(g.ranks)
    gets = [g.root] if name in ("reduce", "gather") and g.root is not None else list(g.ranks)
    of = f" of {g.label}" if g.label else ""
    title = f"{g.name}{of}, {size_text(g.nbytes)}" + (f", {g.reduce}" if g.reduce else "")
    hub = chart.node(f"op{number}", title, "hub", NOBODYS_LOOK, "stadium-shape")
    left = {rank: chart.rank(f"g{number}r{rank}", rank) for rank in gives}
    right = [chart.rank(f"t{number}r{rank}", rank) for rank in gets]
    chart.nodes += [*left.values(), hub, *right]
    for rank, node in left.items():
        chart.link(node, hub, "normal" if rank in g.arrived else "dotted")
    for node in right:
        chart.link(hub, node, "normal" if g.done else "dotted")
