"""Recordings of labs: made by `lockstep record` (lab_recorder), found (index), shown where there are no ranks
(replay_runner).
"""
