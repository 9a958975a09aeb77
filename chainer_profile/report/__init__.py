"""Renderers: each turns a Summary into text, a picture or lines on the terminal; none writes files.

They are imported one by one, where they are used: matplotlib and rich take long to import.
"""
