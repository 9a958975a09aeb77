"""Formulas for the operations and bytes of a call. Use them through :mod:`.work`."""
