"""Frozen facts about a run and the questions one can ask of them. Standard library and numpy only."""
