"""How a report is written: terminal, Markdown, HTML, CSV, JSON, a notebook."""
