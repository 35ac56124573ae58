"""Replacement of a program's functions by a model's, by line ranges of the syntax tree.

No code is run here.
"""

from __future__ import annotations

import ast
import re


def functions(code: str) -> dict[str, tuple[int, int]]:
    """Return top-level function -> (first, last line), from 1, without decorators, as in the official scorer.

    Raise SyntaxError if the text is not code. Of two functions with one name the last counts.
    """
    try:
        tree = ast.parse(code)
    except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes, or nested too deeply
        raise SyntaxError(str(error)) from error
    return {
        node.name: (node.lineno, node.end_lineno or node.lineno)
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def replace_function(program: str, code: str, name: str, *, faithful: bool = False) -> str:
    """Return `program` with its function `name` as in `code`. Raise SyntaxError or KeyError if that fails.

    Faithful: lines are split (also at form feeds) and inserted as in the official scorer: if `code` ends
    without a line break, the program's next line is appended to the function's last.
    """
    first, last = functions(program)[name]
    start, end = functions(code)[name]
    lines, given = (text.splitlines(keepends=True) if faithful else _lines(text) for text in (program, code))
    body = given[start - 1 : end]
    if not faithful and body and not body[-1].endswith("\n"):
        body[-1] += "\n"  # otherwise the next line of the program would be appended
    lines[first - 1 : last] = body
    result = "".join(lines)
    functions(result)
    return result


def same_program(one: str, other: str) -> bool:
    """Return True if two programs differ at most in blank lines and comments."""
    if one == other:
        return True
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _lines(code: str) -> list[str]:
    """Return the lines as the syntax tree counts them: no form feed or U+2028 ends a line."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", code)


def code_blocks(text: str) -> list[str]:
    """Return the contents of fenced blocks, longest first."""
    blocks = re.findall(r"```[^\n`]*\n(.*?)```", text, re.S)
    return sorted(blocks, key=len, reverse=True)
