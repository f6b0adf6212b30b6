"""Plans as data: who computes what, in which order. Nothing here runs, knows a rank or needs torch."""
