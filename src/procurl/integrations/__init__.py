"""Other people's libraries: one file per library, each imported only by those who use it.

Everything here is a thin client of the same environments and teachers; nothing is written twice.
"""

from __future__ import annotations

from procurl.errors import MissingExtraError


def require(package: str, extra: str) -> None:
    """Import an optional package, or say which extra brings it."""
    try:
        __import__(package)
    except ModuleNotFoundError as error:
        if error.name != package:  # it is there, and something that it needs is not
            raise
        raise MissingExtraError(
            f"procurl.integrations.{package} needs {package}, which is not installed: pip install 'procurl[{extra}]'"
        ) from error
