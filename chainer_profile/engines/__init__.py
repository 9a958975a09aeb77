"""The same network under other engines: :mod:`.protocol` says what an engine is."""
