"""One self-contained HTML page per result."""
