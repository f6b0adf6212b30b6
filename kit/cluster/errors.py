"""Errors of a cluster's own processes, as opposed to the learner's."""


class ClusterError(RuntimeError):
    """The cluster's own processes failed; the text says which and what to do."""
