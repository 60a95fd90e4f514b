"""`zeroclawd completion`: the script that lets a shell complete our commands."""

from __future__ import annotations

import click

_HOW = {
    "bash": "zeroclawd completion bash > ~/.local/share/bash-completion/completions/zeroclawd",
    "zsh": 'zeroclawd completion zsh > "${fpath[1]}/_zeroclawd"',
    "fish": "zeroclawd completion fish > ~/.config/fish/completions/zeroclawd.fish",
}


@click.command("completion", epilog="  ".join(_HOW.values()))
@click.argument("shell", type=click.Choice(list(_HOW)))
def command(shell: str) -> int:
    """Print the completion script for a shell; its first line says where to put it."""
    from click.shell_completion import get_completion_class

    from zeroclawd.cli.main import zeroclawd

    kind = get_completion_class(shell)
    assert kind is not None
    script = kind(zeroclawd, {}, "zeroclawd", "_ZEROCLAWD_COMPLETE").source()
    # zsh reads the first line, so the hint comes after it there.
    first, _, rest = script.partition("\n")
    click.echo(f"{first}\n# {_HOW[shell]}\n{rest}" if shell == "zsh" else f"# {_HOW[shell]}\n{script}")
    return 0
