"""Frozen facts about a run and the questions one can ask of them. Standard library and numpy only."""

from kit.trace.facts import (
    Account,
    Failure,
    Frame,
    Memory,
    MemorySample,
    Message,
    Meta,
    Operation,
    Output,
    Pass,
    Place,
    Position,
    RankState,
    RankTrace,
    Region,
    Source,
    Stop,
    Summary,
    TensorFact,
    Trace,
)
from kit.trace.match import disagreement
from kit.trace.text import advice, sentence, sentences
from kit.trace.timeline import Span
from kit.trace.traffic import Traffic
from kit.trace.waits import deadlock, stuck

__all__ = [
    "Account",
    "Failure",
    "Frame",
    "Memory",
    "MemorySample",
    "Message",
    "Meta",
    "Operation",
    "Output",
    "Pass",
    "Place",
    "Position",
    "RankState",
    "RankTrace",
    "Region",
    "Source",
    "Span",
    "Stop",
    "Summary",
    "TensorFact",
    "Trace",
    "Traffic",
    "advice",
    "deadlock",
    "disagreement",
    "sentence",
    "sentences",
    "stuck",
]
