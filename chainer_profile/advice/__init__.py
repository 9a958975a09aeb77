"""Changes that could make a network faster: proposed, tried in fresh processes, and judged."""
