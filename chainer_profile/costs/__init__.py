"""What a call works, by formulas. :mod:`.work` is the entrance; its text says what is counted."""
