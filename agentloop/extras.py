"""What else of the package can be installed, and how."""

import json
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

from agentloop.errors import UsageError
from agentloop.redaction import without_credentials

_DISTRIBUTION = "agentloop-kit"


def missing_extra(whose: str, extra: str) -> UsageError:
    """What `whose` users are told where the extra is not installed; `whose` has its verb."""
    return UsageError(f"{whose} the extra {extra!r}: {installing(extra)}")


def installing(extra: str) -> str:
    """The command that adds the extra, from where the package itself came."""
    try:
        origin = json.loads(distribution(_DISTRIBUTION).read_text("direct_url.json") or "{}")
    except PackageNotFoundError:  # it runs from a folder
        origin = {}
    address, checkout = str(origin.get("url", "")), origin.get("vcs_info")
    if checkout:
        return f'pip install "{_DISTRIBUTION}[{extra}] @ {checkout["vcs"]}+{without_credentials(address)}"'
    folder = url2pathname(urlsplit(address).path) if address.startswith("file:") else ""
    if folder and Path(folder, "pyproject.toml").is_file():
        editable = "-e " if origin.get("dir_info", {}).get("editable") else ""
        return f'pip install {editable}"{folder}[{extra}]"'
    return f'pip install ".[{extra}]" in a clone'
