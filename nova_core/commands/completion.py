"""``nova completion``: the shell's completion script."""

from __future__ import annotations

import click

HOW = """\b
bash  echo 'source <(nova completion bash)' >> ~/.bashrc
zsh   echo 'source <(nova completion zsh)' >> ~/.zshrc
fish  nova completion fish > ~/.config/fish/completions/nova.fish"""


@click.command(epilog=HOW, short_help="Print a shell's completion script.")
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print the script that completes nova's commands in a shell."""
    from click.shell_completion import get_completion_class

    script = get_completion_class(shell)
    if script is None:
        raise click.UsageError(f"shell {shell}: not supported by this version of click")
    click.echo(script(ctx.find_root().command, {}, "nova", "_NOVA_COMPLETE").source())
