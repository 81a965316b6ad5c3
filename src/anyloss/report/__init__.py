"""The report: one self-contained HTML page per result, for readers who did not fit the model.

The page needs no network, no script and no font. Its pictures are SVG in the colours of the page,
so that they follow a dark screen and print dark on white.
"""

try:
    import jinja2 as _jinja2  # noqa: F401  # for the error below; the modules import it themselves
    import sklearn as _sklearn  # noqa: F401
except ModuleNotFoundError as error:
    raise ModuleNotFoundError(
        f"anyloss.report needs {error.name}; install it with: pip install 'anyloss[report]'"
    ) from error

from anyloss.report.page import render, write

__all__ = ["render", "write"]
