"""Errors of a cluster's own processes, as opposed to the learner's."""


class ClusterError(RuntimeError):
    """The cluster's own processes failed; the text says which and what to do."""


class Unavailable(ValueError):
    """What was asked for makes sense, and this machine cannot give it; the text says what would help."""
