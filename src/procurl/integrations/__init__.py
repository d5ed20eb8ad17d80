"""Other people's libraries: one file per library, each imported only by those who use it.

Everything here is a thin client of the same environments and teachers; nothing is written twice.
"""

from __future__ import annotations

from procurl.errors import MissingExtraError


def name_the_extra(error: ModuleNotFoundError, package: str, extra: str) -> None:
    """Turn the failed import of an optional package into advice; another missing module is not our business."""
    if error.name == package:
        raise MissingExtraError(
            f"procurl.integrations.{package} needs {package}, which is not installed: pip install 'procurl[{extra}]'"
        ) from error
