"""Looks a machine over before a workshop: one small function for each question, one frozen finding for each answer.

`examine(ranks)` asks them all. Nothing here changes anything, except `leftovers.end`, which has to be asked for.
"""
