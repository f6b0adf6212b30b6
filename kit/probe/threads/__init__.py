"""Ranks that are threads of one process: sixteen or thirty-two of them where processes would not fit."""
