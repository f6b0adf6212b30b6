"""A class and what it handed in: answers taken out of notebooks, run behind walls, judged, and drawn as pages."""
