"""Frozen facts about a run and the questions one can ask of them. Standard library and numpy only."""

from kit.trace.compare import disagreement, mismatches
from kit.trace.facts import (
    Account,
    Failure,
    Frame,
    Holding,
    Memory,
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
from kit.trace.questions import Message
from kit.trace.sentences import advice, sentence, sentences
from kit.trace.timeline import Span
from kit.trace.traffic import Traffic
from kit.trace.waits import deadlock, stuck

__all__ = [
    "Account",
    "Failure",
    "Frame",
    "Holding",
    "Memory",
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
    "mismatches",
    "sentence",
    "sentences",
    "stuck",
]
