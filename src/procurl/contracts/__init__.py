"""What procurl asks of a task space, an environment and a teacher, one file each.

Each gathers all that it finds and never stops at the first problem. `procurl.check` turns the findings into errors for
Python, `procurl.checking` into text for the command line.
"""

from __future__ import annotations
