"""The result of measuring, :class:`.recording.Recording`, and the files that store it."""
