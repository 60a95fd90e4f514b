"""The command line: finds a command's file when it is asked for, and turns errors into one line and an exit code."""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence

import click

from zeroclawd import __version__
from zeroclawd.errors import ZeroclawdError

COMMANDS: dict[str, str] = {
    "run": "run the daemon",
    "demo": "play the whole story on a simulated board",
    "init": "write a commented starter config",
    "check": "check a config and say what would run",
    "send": "send a command and wait for its reply",
    "approvals": "watch, list and answer questions",
    "operator": "make an operator's key",
    "receipts": "list, show, verify and export the ledger",
    "tools": "list the tools",
    "devices": "list the devices and their states",
    "estop": "engage or release the emergency stop",
    "status": "show a node's status",
    "completion": "print the shell completion for bash, zsh or fish",
    "safe-state": "drive the safe states and exit (for the unit)",
}


class Lazy(click.Group):
    """Commands stand in `zeroclawd.cli.<name>`; listing them imports none."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """The commands in the order of their table."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the command's file."""
        if cmd_name not in COMMANDS:
            return None
        module = importlib.import_module(f"zeroclawd.cli.{cmd_name.replace('-', '_')}")
        command: click.Command = module.command
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command, or name the nearest one."""
        name = args[0] if args else ""
        if name and not name.startswith("-") and name not in COMMANDS:
            import difflib

            near = difflib.get_close_matches(name, COMMANDS, n=1)
            guess = f"; did you mean '{near[0]}'?" if near else "; `zeroclawd --help` lists them"
            raise click.UsageError(f"there is no command '{name}'{guess}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """One line each, without importing them."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))


@click.command(cls=Lazy, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, message="zeroclawd %(version)s")
def zeroclawd() -> None:
    """The agent daemon for boards with real hardware.

    `zeroclawd demo` shows everything on a simulated board; `zeroclawd init` writes a config to begin with.
    """


def run(arguments: Sequence[str] | None = None) -> int:
    """Run a command line; exit codes: 0 done, 1 failed or refused, 2 not usable as given, 130 interrupted."""
    # https://no-color.org: set and not empty means no colour, also in a terminal.
    colour = False if os.environ.get("NO_COLOR") else None
    try:
        code = zeroclawd.main(arguments, prog_name="zeroclawd", standalone_mode=False, color=colour)
    except click.ClickException as error:
        error.show()
        return 2
    except click.exceptions.Exit as stop:
        return stop.exit_code
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted", err=True)
        return 130
    except ZeroclawdError as error:
        complain(error, colour)
        return 2 if type(error).__name__ in ("ConfigError", "KeyFileError") else 1
    except BrokenPipeError:
        # Whoever read our output has gone; Python must not complain about it again at exit.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    return code if isinstance(code, int) else 0


def complain(error: ZeroclawdError, colour: bool | None = None) -> None:
    """Say what failed and, on a second line, what to try."""
    click.echo(f"{click.style('error:', fg='red', bold=True)} {error}", err=True, color=colour)
    if error.hint:
        click.echo(f"  try: {error.hint}", err=True)
