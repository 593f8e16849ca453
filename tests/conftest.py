"""What tests get by the name of an argument."""

import pytest


@pytest.fixture(params=[True, False], ids=["streamed", "whole"])
def stream(request: pytest.FixtureRequest) -> bool:
    """Whether the model streams; the test runs both ways."""
    return bool(request.param)
