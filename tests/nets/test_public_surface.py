"""The public names stay where they are, and so does how each is called."""

import pytest

from tests.nets.frozen import FREEZE, frozen, hold
from tests.nets.surface import FILE, MODULES, lines_of, names_of

pytestmark = pytest.mark.whole


@pytest.mark.parametrize("module", MODULES)
def test_no_public_name_changes_unseen(module: str) -> None:
    wanted = frozen(FILE)[module]
    hold(wanted, {name: lines_of(module, name) for name in wanted}, module)


@pytest.mark.parametrize("module", MODULES)
def test_no_public_name_is_added_unseen(module: str) -> None:
    added = set(names_of(module)) - set(frozen(FILE)[module])
    assert not added, f"{module} has new names: {sorted(added)}; {FREEZE}"
