"""The README's map is true: every module stands in it, imports point down, each vendor has one door."""

import ast
import re
from collections.abc import Iterator
from graphlib import TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "agentloop"
DOORS = {
    "openai": {"openai_api"},
    "httpx2": {"openai_api"},
    "tenacity": {"retry"},
    "tiktoken": {"vocabularies"},
    "genai_prices": {"windows"},
    "pydantic": {"tool_schemas"},
    "docstring_parser": {"docstrings"},
    "sqlite3": {"stores"},
    "psycopg": {"stores"},
    "dbos": {"durable"},
    "structlog": {"cli"},
    "click": {"cli"},
    "rich": {"cli"},
    "prompt_toolkit": {"cli"},
    "platformdirs": {"cli"},
}


def layers() -> dict[str, int]:
    """The map in the README."""
    rows = re.findall(r"^\| (\d+) \| ((?:`\w+` ?)+) \|", (ROOT / "README.md").read_text(), re.MULTILINE)
    return {name: int(layer) for layer, names in rows for name in re.findall(r"\w+", names)}


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Every file of the package with the name that the map has for it."""
    for path in sorted(PACKAGE.rglob("*.py")):
        yield path.relative_to(PACKAGE).with_suffix("").parts[0], ast.parse(path.read_text())


def imports(tree: ast.Module) -> Iterator[str]:
    """The full names that a file imports, those for type checkers alone left out."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        waiting.extend(ast.iter_child_nodes(node))


def inside(folder: Path) -> dict[str, set[str]]:
    """What each module of a folder imports of that folder, a folder within it counting as one."""
    prefix = f"agentloop.{folder.relative_to(PACKAGE).as_posix().replace('/', '.')}."
    found: dict[str, set[str]] = {}
    for path in folder.rglob("*.py"):
        name = path.relative_to(folder).with_suffix("").parts[0]
        wanted = {each for each in imports(ast.parse(path.read_text())) if each.startswith(prefix)}
        others = {each.removeprefix(prefix).split(".")[0] for each in wanted}
        found.setdefault(name, set()).update(others - {name})
    return {name: others & found.keys() for name, others in found.items()}


def test_the_map_names_every_module_once() -> None:
    found = {name for name, _ in modules()} - {"__init__", "__main__"}
    assert found == set(layers())


def test_imports_point_down() -> None:
    order = layers()
    upward = [
        f"{name} imports {imported}"
        for name, tree in modules()
        if name in order
        for imported in imports(tree)
        if imported.startswith("agentloop.")
        and (other := imported.split(".")[1]) in order
        and other != name
        and order[other] >= order[name]
    ]
    assert upward == []


def test_no_modules_of_a_folder_import_each_other() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE}
    for folder in sorted(folders):
        wanted = inside(folder)
        assert set(TopologicalSorter(wanted).static_order()) == wanted.keys()


def test_each_vendor_has_one_door() -> None:
    elsewhere = [
        f"{name} imports {imported}"
        for name, tree in modules()
        for imported in imports(tree)
        if name not in DOORS.get(imported.split(".")[0], {name})
    ]
    assert elsewhere == []
