"""Run labs without a browser, the shipped ones or a pile of handed-in notebooks, and report what the checks said."""
