"""Topics: each folder holds its reference implementations, formulas, exercises and figures.

Topics of somebody's own, which lie beside their notebooks, have the same name here: `kit.topics.<topic>`.
"""

from kit import resources

__path__.extend(str(folder.topics) for folder in resources.own())
