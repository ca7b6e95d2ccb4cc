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

    For bash, put `eval "$(arriero completion bash)"` into ~/.bashrc; for zsh the same with zsh into ~/.zshrc. For fish, run
    `arriero completion fish > ~/.config/fish/completions/arriero.fish`.
    """
    made = get_completion_class(shell)
    assert made is not None
    click.echo(made(context.find_root().command, {}, "arriero", VARIABLE).source())
