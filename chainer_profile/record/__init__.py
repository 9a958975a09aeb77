"""What measuring hands over: :class:`.recording.Recording`, and its file."""
