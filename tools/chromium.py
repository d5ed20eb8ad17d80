"""A Chromium for the tests of the report's page: the system's, Playwright's, or a new one (`make test-browser`)."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find() -> str | None:
    """The path of a browser that can be started, if there is one."""
    for name in NAMES:
        if path := shutil.which(name):
            return path
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if Path(path).is_file() else None


def install() -> None:
    """Debian's and Ubuntu's package where we may install it, else the one that Playwright brings."""
    if shutil.which("apt-get") and os.geteuid() == 0:
        subprocess.run(["apt-get", "update", "-qq"], check=False)
        done = subprocess.run(["apt-get", "install", "-qq", "-y", "--no-install-recommends", "chromium"], check=False)
        if done.returncode == 0 and shutil.which("chromium"):
            return
    subprocess.run([sys.executable, "-m", "playwright", "install", "chromium"], check=True)


def main() -> None:
    if find() is None:
        install()
    found = find()
    if found is None:
        sys.exit("no Chromium was found and none could be installed: install one, e.g. `apt-get install chromium`")
    print(found)


if __name__ == "__main__":
    main()
