"""Write reports in one format each: terminal, Markdown, HTML, CSV, JSON."""
