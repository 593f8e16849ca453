"""What a statement finds, in binary form, by a statement that the server prepares once."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeAlias

from psycopg import AsyncConnection

Values: TypeAlias = Mapping[str, Any] | Sequence[Any]


async def all_rows(connection: AsyncConnection, statement: str, values: Values) -> list[Any]:
    """All of its rows."""
    return await (await connection.execute(statement, values, prepare=True, binary=True)).fetchall()


async def one_row(connection: AsyncConnection, statement: str, values: Values) -> tuple[Any, ...] | None:
    """Its first row; None where there is none."""
    return await (await connection.execute(statement, values, prepare=True, binary=True)).fetchone()
