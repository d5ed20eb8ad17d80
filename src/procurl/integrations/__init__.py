"""Other libraries, one file each, imported only when used: thin clients of the same environments and teachers."""

from __future__ import annotations

from procurl.errors import MissingExtraError


def name_the_extra(error: ModuleNotFoundError, package: str, extra: str) -> None:
    """Turn the failed import of an optional package into advice; any other missing module is left to the caller."""
    if error.name == package:
        raise MissingExtraError(
            f"procurl.integrations.{package} needs {package}, which is not installed: pip install 'procurl[{extra}]'"
        ) from error
