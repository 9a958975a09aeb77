"""How a report is written: terminal, Markdown, LaTeX, PDF, CSV, JSON, a notebook."""
