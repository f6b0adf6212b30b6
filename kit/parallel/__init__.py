"""Readable reference implementations of parallel training: plain torch, explicit groups, made to be stepped."""
