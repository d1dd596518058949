"""No technique is special: neither the C++ core nor the framework in Python knows a plugin by its name.

Three places may: `geomx/env.py`, which translates the seed's variables of each technique, the benchmarks, which measure
them, and the templates of other people's plugins, which may build on one.
"""

import ast
import re
from pathlib import Path

ROOT = Path(__file__).parents[2]
PLUGINS = sorted(p.parent.name for p in (ROOT / "plugins").glob("*/pyproject.toml"))
NAME = re.compile(rf"(?<![A-Za-z0-9])({'|'.join(PLUGINS)})(?![A-Za-z0-9])", re.IGNORECASE)


def said(path):
    """The names and strings of a module, docstrings excepted, with their lines."""
    tree = ast.parse(path.read_text())
    docstrings = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in docstrings:
            yield node.lineno, node.value
        elif isinstance(node, ast.Name):
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute):
            yield node.lineno, node.attr


def test_there_are_plugins_to_look_for():
    assert {"bsc", "fp16", "mpq"} <= set(PLUGINS)
    assert NAME.search("if transport == 'BSC':") and not NAME.search("absconded")


def test_the_core_in_cpp_names_no_plugin():
    sources = [*(ROOT / "geomx/core").glob("*.*"), *(ROOT / "geomx/include").rglob("*.h")]
    assert len(sources) > 50
    found = [
        f"{path.name}:{number}: {line.strip()}"
        for path in sources
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if NAME.search(line)
    ]
    assert found == []


def test_the_framework_in_python_names_no_plugin():
    modules = [
        p for p in (ROOT / "geomx").rglob("*.py") if p.name != "env.py" and not {"bench", "templates"} & set(p.parts)
    ]
    assert len(modules) > 50
    found = [f"{p.relative_to(ROOT)}:{line}: {text!r}" for p in modules for line, text in said(p) if NAME.search(text)]
    assert found == []
