"""Panels: a session or a recording as a widget, driven by hand or by a script alike.

`results` says which panel shows which result; it is loaded when someone asks for one.
"""
