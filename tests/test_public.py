"""What users hold in their hands: the names of the package, and the README's own words."""

import ast
import subprocess
import sys
from pathlib import Path

import agentloop

ROOT = Path(__file__).parent.parent


def test_every_public_name_is_there_and_listed_once() -> None:
    assert len(set(agentloop.__all__)) == len(agentloop.__all__)
    assert all(getattr(agentloop, name) is not None for name in agentloop.__all__)
    assert set(dir(agentloop)) >= set(agentloop.__all__)


def test_type_checkers_see_the_same_names() -> None:
    tree = ast.parse((ROOT / "agentloop" / "__init__.py").read_text())
    block = next(node for node in tree.body if isinstance(node, ast.If))
    seen = {alias.name for node in block.body if isinstance(node, ast.ImportFrom) for alias in node.names}
    assert seen == set(agentloop.__all__)


def test_an_unknown_name_is_an_attribute_error() -> None:
    done = subprocess.run(
        [sys.executable, "-c", "from agentloop import Nothing"], capture_output=True, text=True
    )
    assert "cannot import name 'Nothing'" in done.stderr


def test_importing_loads_nothing_else() -> None:
    script = "import sys, agentloop; print(sorted(name for name in sys.modules if 'agentloop' in name))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['agentloop']"
