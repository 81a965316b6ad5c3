"""Metrics as text, such as `2*tp / (2*tp + fp + fn)`.

A formula is parsed and never evaluated as code. It may contain numbers, the four counts,
`+ - * / **`, parentheses and `sqrt( )`, and its length, its number of parts and its exponents are
limited. A formula from an untrusted source can therefore do no harm.
"""

from __future__ import annotations

import ast
import math
import operator
import threading
import warnings
from typing import Any

CELLS = ("tp", "fn", "fp", "tn")
MAX_CHARACTERS = 500
MAX_NODES = 200
MAX_EXPONENT = 8.0

_BINARY = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Pow: "**"}
_APPLY: dict[str, Any] = {
    "+": operator.add,
    "-": operator.sub,
    "*": operator.mul,
    "/": operator.truediv,
    "**": operator.pow,
}
_PARSING = threading.Lock()  # catch_warnings is not for several threads
Node = float | str | tuple[str, Any, Any]


class Formula:
    """A metric that is given as text and called with the four counts.

    >>> Formula("tp / (tp + 2*fn)")(tp=6.0, fn=2.0, fp=1.0, tn=9.0)
    0.6
    >>> Formula("tp / (tp + precision)")
    Traceback (most recent call last):
    ...
    ValueError: unknown name 'precision' in the formula; use tp, fn, fp, tn, numbers and sqrt( )
        tp / (tp + precision)
                   ^
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._tree = _Parser(text).parse()

    def __call__(self, tp: Any, fn: Any, fp: Any, tn: Any) -> Any:
        return _walk(self._tree, {"tp": tp, "fn": fn, "fp": fp, "tn": tn})

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Formula) and self._tree == other._tree

    def __hash__(self) -> int:
        return hash(self._tree)

    def __repr__(self) -> str:
        return f"Formula({self.text!r})"


def _walk(node: Node, cells: dict[str, Any]) -> Any:
    if isinstance(node, float):
        return node
    if isinstance(node, str):
        return cells[node]
    symbol, left, right = node
    return _APPLY[symbol](_walk(left, cells), _walk(right, cells))


class _Parser:
    """Turns text into a tree of floats, names of counts and `(symbol, left, right)`.

    Errors show the position in the text.
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self.indent = len(text) - len(text.lstrip())
        self.nodes = 0
        self.uses_cells = False

    def parse(self) -> Node:
        if len(self.text) > MAX_CHARACTERS:
            raise ValueError(
                f"a formula must have at most {MAX_CHARACTERS} characters; got {len(self.text)}"
            )
        for column, character in enumerate(self.text):
            if not (character.isascii() and (character.isprintable() or character == "\t")):
                raise self.fault(f"a formula must be ASCII on one line; got {character!r}", column)
        stripped = self.text.lstrip()
        if not stripped:
            raise ValueError("the formula is empty; write one such as 'tp / (tp + fp + fn)'")
        try:
            with _PARSING, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # Python's hints about odd literals
                body = ast.parse(stripped, mode="eval").body
        except SyntaxError as error:
            column = self.indent + (error.offset - 1 if error.offset else len(stripped))
            raise self.fault(f"the formula is not well formed ({error.msg})", column) from None
        except (MemoryError, RecursionError, ValueError):
            raise self.fault("the formula is nested too deeply", 0) from None
        tree = self.node(body)
        if not self.uses_cells:
            raise self.fault("the formula uses none of tp, fn, fp, tn", self.indent)
        return tree

    def node(self, node: ast.expr) -> Node:
        self.nodes += 1
        column = self.indent + node.col_offset
        if self.nodes > MAX_NODES:
            raise self.fault(f"a formula must have at most {MAX_NODES} parts", column)
        if isinstance(node, ast.Constant):
            return self.number(node.value, column)
        if isinstance(node, ast.Name):
            if node.id.lower() not in CELLS:
                raise self.fault(
                    f"unknown name {node.id!r} in the formula; use tp, fn, fp, tn, numbers and "
                    "sqrt( )",
                    column,
                )
            self.uses_cells = True
            return node.id.lower()
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.UAdd | ast.USub):
            sign = -1.0 if isinstance(node.op, ast.USub) else 1.0
            inner = self.node(node.operand)
            return sign * inner if isinstance(inner, float) else ("*", sign, inner)
        if isinstance(node, ast.BinOp) and type(node.op) in _BINARY:
            return self.operation(node, column)
        if isinstance(node, ast.Call):
            return self.root(node, column)
        if isinstance(node, ast.BinOp):
            after = self.indent + (node.left.end_col_offset or 0)
            column = after + len(self.text[after:]) - len(self.text[after:].lstrip(" )"))
            hint = "a power is written **; " if isinstance(node.op, ast.BitXor) else ""
            raise self.fault(f"{hint}the operators of a formula are + - * / and **", column)
        raise self.fault(
            "only + - * / **, parentheses, numbers, tp, fn, fp, tn and sqrt( ) are allowed", column
        )

    def number(self, value: Any, column: int) -> float:
        if isinstance(value, bool) or not isinstance(value, int | float):
            raise self.fault(f"expected a number; got {value!r}", column)
        if abs(value) > 1e100 or not math.isfinite(value):
            raise self.fault("a number in a formula must be finite and at most 1e100", column)
        return float(value)

    def operation(self, node: ast.BinOp, column: int) -> Node:
        symbol = _BINARY[type(node.op)]
        left, right = self.node(node.left), self.node(node.right)
        place = self.indent + node.right.col_offset
        if symbol == "**":
            right = self.exponent(right, place)
        if symbol == "/" and right == 0.0:
            raise self.fault("a formula must not divide by zero", place)
        if isinstance(left, float) and isinstance(right, float):
            return self.constant(symbol, left, right, column)
        return (symbol, left, right)

    def exponent(self, tree: Node, column: int) -> float:
        if not isinstance(tree, float) or abs(tree) > MAX_EXPONENT:
            raise self.fault(f"an exponent must be a number from -8 to {MAX_EXPONENT:g}", column)
        return tree

    def constant(self, symbol: str, left: float, right: float, column: int) -> float:
        try:
            value = _APPLY[symbol](left, right)
        except ArithmeticError:
            value = math.nan
        if isinstance(value, complex) or not math.isfinite(value):
            raise self.fault("this part of the formula is not a finite number", column)
        return float(value)

    def root(self, node: ast.Call, column: int) -> Node:
        if not isinstance(node.func, ast.Name) or node.func.id.lower() != "sqrt":
            raise self.fault(
                "the only function in a formula is sqrt( ); a named metric cannot be part of a "
                "formula, and takes its parameters by name, as in metric('fbeta', beta=2)",
                column,
            )
        if len(node.args) != 1 or node.keywords:
            raise self.fault("sqrt takes one argument", column)
        inner = self.node(node.args[0])
        if isinstance(inner, float):
            return self.constant("**", inner, 0.5, column)
        return ("**", inner, 0.5)

    def fault(self, message: str, column: int) -> ValueError:
        return fault(self.text, message, column)


def fault(text: str, message: str, column: int) -> ValueError:
    """An error that shows its place in the text."""
    shown = text.replace("\t", " ")
    return ValueError(f"{message}\n    {shown}\n    {' ' * max(column, 0)}^")


# The precedence of an operator, and the precedence that its left and its right operand need to be
# written without parentheses. A quotient within a product gets parentheses for readability.
_BINDS = {"+": (1, 1, 1), "-": (1, 1, 2), "/": (2, 2, 4), "*": (3, 3, 3), "**": (4, 5, 5)}


class Written:
    """A count or parameter whose operations write the formula of a metric as text.

    >>> tp, fn = Written("tp"), Written("fn")
    >>> str(1 - tp / (tp + 2 * fn)), str((tp * fn) ** 0.5)
    ('1 - tp / (tp + 2*fn)', 'sqrt(tp*fn)')
    """

    def __init__(self, text: str, binds: int = 5) -> None:
        self.text, self.binds = text, binds

    def __str__(self) -> str:
        return self.text

    def _with(self, symbol: str, other: Any, *, turned: bool = False) -> Written:
        other = other if isinstance(other, Written) else Written(f"{other:g}")
        left, right = (other, self) if turned else (self, other)
        if symbol == "**" and right.text == "0.5":
            return Written(f"sqrt({left.text})")
        binds, *wanted = _BINDS[symbol]
        first, second = (
            part.text if part.binds >= least else f"({part.text})"
            for part, least in zip((left, right), wanted, strict=True)
        )
        space = "" if symbol in ("*", "**") else " "
        return Written(f"{first}{space}{symbol}{space}{second}", binds)

    def __add__(self, other: Any) -> Written:
        return self._with("+", other)

    def __radd__(self, other: Any) -> Written:
        return self._with("+", other, turned=True)

    def __sub__(self, other: Any) -> Written:
        return self._with("-", other)

    def __rsub__(self, other: Any) -> Written:
        return self._with("-", other, turned=True)

    def __mul__(self, other: Any) -> Written:
        return self._with("*", other)

    def __rmul__(self, other: Any) -> Written:
        return self._with("*", other, turned=True)

    def __truediv__(self, other: Any) -> Written:
        return self._with("/", other)

    def __rtruediv__(self, other: Any) -> Written:
        return self._with("/", other, turned=True)

    def __pow__(self, other: Any) -> Written:
        return self._with("**", other)
