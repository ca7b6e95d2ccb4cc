"""``arriero completion``: the script that lets a shell complete commands and options."""

import click
from click.shell_completion import get_completion_class

SHELLS = ("bash", "zsh", "fish")
VARIABLE = "_ARRIERO_COMPLETE"  # by which click knows that a shell asks


@click.command(short_help="Print the script that completes commands in a shell.")
@click.argument("shell", metavar="SHELL", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the script that lets bash, zsh or fish complete commands and options.

    bash 4.4 or later: put `eval "$(arriero completion bash)"` into ~/.bashrc. macOS has bash 3.2, which cannot complete: install
    a later one, or use zsh.

    zsh: put `autoload -Uz compinit && compinit` into ~/.zshrc, and behind it `eval "$(arriero completion zsh)"`.

    fish: run `arriero completion fish > ~/.config/fish/completions/arriero.fish`.
    """
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(context.find_root().command, {}, "arriero", VARIABLE).source())
