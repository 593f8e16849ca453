"""A SQLite file that nothing can be made beside: read as it stands, for as long as nobody writes to it."""

from dataclasses import dataclass
from pathlib import Path

from agentloop.errors import StoreError
from agentloop.stores.sqlite import place


@dataclass(frozen=True, slots=True)
class AsItStood:
    """The file as it stood when it was opened, `state` being what a write to it changes."""

    path: Path
    state: tuple[int | None, ...]

    @property
    def is_written(self) -> bool:
        """Whether somebody has written to it since: what is read of it may be of two states."""
        return self.state != place.state(self.path)

    def refuse_written(self) -> None:
        """That what was read is of one state.

        Raises:
            StoreError: somebody has written to it since.
        """
        if self.is_written:
            raise StoreError(f"{self.path}: another process wrote to the database meanwhile: try again")
