"""Clusters of real ranks: their processes are started, watched, reset and ended here.

Importing this package loads neither torch nor ipyparallel.
"""
