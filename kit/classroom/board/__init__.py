"""The class board: where everybody is during a workshop, of those who have joined it by their own wish.

A learner's kernel leaves its latest `News` where the board finds it: in a folder that both reach, or by TCP. Nothing of
it is imported, and no thread runs, in the kernel of who has not joined.
"""
