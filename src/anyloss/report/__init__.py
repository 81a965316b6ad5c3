"""The report: one self-contained HTML page per result, for those who did not fit the model.

It needs no network, no script and no font of its own; the pictures are SVG in the colours of the
page, so that they follow a dark screen and print black on white.
"""

from anyloss.report.page import render, write

__all__ = ["render", "write"]
