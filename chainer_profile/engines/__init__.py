"""A network under other engines, whose protocol is :class:`.protocol.Engine`."""
