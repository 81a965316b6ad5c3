"""The machinery under every front-end. Not for import: what is public is named in `anyloss`."""
