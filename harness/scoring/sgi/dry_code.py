"""Putting a model's functions into a program, by the line ranges of its syntax tree. Nothing is run here."""

from __future__ import annotations

import ast
import re


def functions(code: str) -> dict[str, tuple[int, int]]:
    """Top-level function -> (first, last line), from 1; decorators are outside, as in the official scorer.

    SyntaxError if the code is none. Of two functions with one name the last counts.
    """
    try:
        tree = ast.parse(code)
    except (ValueError, RecursionError, MemoryError) as error:  # NUL bytes, or nested beyond reason
        raise SyntaxError(str(error)) from error
    return {
        node.name: (node.lineno, node.end_lineno or node.lineno)
        for node in tree.body
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    }


def replace_function(program: str, code: str, name: str, *, faithful: bool = False) -> str:
    """`program` with its function `name` as `code` has it. SyntaxError or KeyError says why it can't be.

    Faithful: as the official scorer cuts lines (a form feed ends one, too) and puts them in: where `code` ends without
    a line break, the program's next line goes on in the function's last.
    """
    first, last = functions(program)[name]
    start, end = functions(code)[name]
    lines, given = (text.splitlines(keepends=True) if faithful else _lines(text) for text in (program, code))
    body = given[start - 1 : end]
    if not faithful and body and not body[-1].endswith("\n"):
        body[-1] += "\n"  # without it the next line of the program would be joined on
    lines[first - 1 : last] = body
    result = "".join(lines)
    functions(result)
    return result


def same_program(one: str, other: str) -> bool:
    """Whether two programs differ in blank lines and comments at most."""
    if one == other:
        return True
    try:
        return ast.dump(ast.parse(one)) == ast.dump(ast.parse(other))
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return False


def _lines(code: str) -> list[str]:
    """The lines as the syntax tree counts them: a form feed or U+2028 ends none, as splitlines() has it."""
    return re.findall(r"[^\r\n]*(?:\r\n|\r|\n)|[^\r\n]+", code)


def code_blocks(text: str) -> list[str]:
    """The contents of fenced blocks, longest first."""
    blocks = re.findall(r"```[^\n`]*\n(.*?)```", text, re.S)
    return sorted(blocks, key=len, reverse=True)
