"""Inside a rank: lines, operations, tensors, memory and output, observed without touching the learner's code.

Imports torch only in the modules that need it; `wire` and `shipping` also run in the kernel and the host agent.
"""
