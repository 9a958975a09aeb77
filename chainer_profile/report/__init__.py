"""Render a Summary as text, a picture or lines on the terminal. Nothing here writes files.

Import each module where it is used, because Matplotlib and rich take long to import.
"""
