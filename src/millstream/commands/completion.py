"""`millstream completion`: the script that makes a shell complete our commands."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

EXAMPLES = """\b
Examples:
  millstream completion bash > ~/.local/share/bash-completion/completions/millstream
  millstream completion zsh > "${fpath[1]}/_millstream"
  millstream completion fish > ~/.config/fish/completions/millstream.fish
"""


class Shell(StrEnum):
    BASH = "bash"
    ZSH = "zsh"
    FISH = "fish"


def completion(shell: Annotated[Shell, typer.Argument(help="The shell to complete in.")]) -> None:
    """Print the completion script for a shell."""
    from typer._completion_shared import get_completion_script

    print(
        get_completion_script(
            prog_name="millstream", complete_var="_MILLSTREAM_COMPLETE", shell=shell.value
        ).strip()
    )
