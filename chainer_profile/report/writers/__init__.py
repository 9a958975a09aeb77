"""How a report is written: terminal, Markdown, PDF, CSV, JSON, a notebook."""
