"""The command line: `procurl list | train | sweep | resume | bench | evaluate | plot | report | watch | theory |
check | doctor`.

Strings become objects here, once. Nothing on the way to a help text imports JAX; `train` first tells XLA which
processors to use and imports it then.
"""

from __future__ import annotations

import argparse
import difflib
import re
import sys
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NoReturn

from procurl import __version__
from procurl.check.text import printable
from procurl.cli import bench, check, doctor, evaluate, listing, plot, report, resume, sweep, theory, train, watch
from procurl.devices import keep_programs
from procurl.errors import ProcurlError

# in the order of the help text
COMMANDS = (listing, train, sweep, resume, bench, evaluate, plot, report, watch, theory, check, doctor)


def main(argv: Sequence[str] | None = None) -> int:
    """Entry point; returns the exit status."""
    args = build_parser().parse_args(argv)
    keep_programs()
    try:
        return int(args.run(args) or 0)
    except ProcurlError as error:
        print(printable(f"procurl: {error}"), file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("procurl: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has gone, as in `procurl list | head`
        sys.stderr.close()
        return 0
    except OSError as error:  # of the disk: full, read-only, gone
        print(printable(f"procurl: {error.filename or 'a file'}: {error.strerror or error}"), file=sys.stderr)
        return 1


class Command(argparse.ArgumentParser):
    """A parser whose epilog is made when help is printed: it lists the fields of teachers, and those import JAX."""

    make_epilog: Callable[[], str] | None = None

    def format_help(self) -> str:
        if self.make_epilog is not None:
            self.epilog = self.make_epilog()
        return super().format_help()

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        """Options that this command does not know are its own affair: the parser above knows none of its names."""
        found, unknown = super().parse_known_args(args, namespace)
        if unknown and "run" in vars(found):
            self.error(unrecognised(unknown, self._option_string_actions))
        return found, unknown

    def error(self, message: str) -> NoReturn:
        if "--context: expected one argument" in message:  # argparse takes -2,1,0 for an option
            message += "; where the first number is negative, write --context=-2,1,0"
        super().error(with_suggestion(message))


def with_suggestion(message: str) -> str:
    """argparse's message about a choice or option that it does not know, with the closest that it does know."""
    chosen = re.search(r"invalid choice: '(.*?)' \(choose from (.*)\)", message)
    if chosen:
        close = difflib.get_close_matches(chosen[1], re.findall(r"[\w-]+", chosen[2]), n=1)
        message += f". Did you mean {close[0]}?" if close else ""
    return message


def unrecognised(given: Sequence[str], known: Iterable[str]) -> str:
    """argparse's own words, and for each option among them the closest that there is."""
    close = [
        match
        for text in given
        if text.startswith("-")
        for match in difflib.get_close_matches(text.partition("=")[0], known, n=1)
    ]
    hint = f". Did you mean {' and '.join(dict.fromkeys(close))}?" if close else ""
    return f"unrecognized arguments: {' '.join(given)}{hint}"


def build_parser() -> argparse.ArgumentParser:
    parser = Command(
        prog="procurl", description="Curriculum reinforcement learning: a teacher picks tasks, a student learns."
    )
    parser.add_argument("--version", action="version", version=f"procurl {__version__}")
    commands = parser.add_subparsers(required=True, metavar="COMMAND", parser_class=Command)

    for command in COMMANDS:
        command.add(commands)
    return parser
