"""Ranks: one program, many processes."""
