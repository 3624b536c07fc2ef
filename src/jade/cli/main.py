"""`jade`: thin verbs, one file each. Nothing heavy is imported before a verb needs it.

Exit status: 0 when the verb did its work, 1 when the team failed at it, 2 when something is the user's to mend,
130 when it was stopped.
"""

from __future__ import annotations

import sys

try:
    import errno
    import os
    import re
    from collections.abc import Callable
    from typing import Annotated

    import typer

    from jade.cli import (
        ask,
        demo,
        doctor,
        evaluate,
        export,
        export_verl,
        index,
        mcp,
        plot,
        report,
        retrieve_server,
        serve,
        trace,
        train,
        view,
        warmstart,
        world,
    )
    from jade.errors import JadeError
    from jade.extras import extra_of, how_to_get
    from jade.screen.terminal import complain, print_what_can_be_printed
except KeyboardInterrupt:  # stopped before it began: as quiet as later
    sys.exit(130)

app = typer.Typer(name="jade", no_args_is_help=True, add_completion=False, pretty_exceptions_enable=False)
VERBS: dict[str, Callable[..., None]] = {
    "index": index.command,
    "ask": ask.command,
    "serve": serve.command,
    "view": view.command,
    "mcp": mcp.command,
    "eval": evaluate.command,
    "report": report.command,
    "warmstart": warmstart.command,
    "train": train.command,
    "plot": plot.command,
    "export": export.command,
    "export-verl": export_verl.command,
    "retrieve-server": retrieve_server.command,
    "world": world.command,
    "demo": demo.command,
    "doctor": doctor.command,
}
for name, command in VERBS.items():
    app.command(name)(command)
app.add_typer(trace.app, name="trace")


NOT_WRITTEN = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""Ways in which a disk refuses what was meant to be written."""


def _print_version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        typer.echo(version("jade-team"))
        raise typer.Exit


@app.callback()
def jade(
    version: Annotated[
        bool, typer.Option("--version", callback=_print_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A team of language-model agents that answers questions over your documents and learns as a team."""


def main() -> None:
    """Run a verb; what is the user's to mend is said in one line, without a traceback."""
    print_what_can_be_printed()
    try:
        app(prog_name="jade")
    except KeyboardInterrupt:
        sys.exit(130)
    except JadeError as error:
        complain(str(error))
        sys.exit(2)
    except ModuleNotFoundError as error:
        missing = (error.name or "").partition(".")[0]
        extra = extra_of(missing)
        if extra is None:
            raise
        complain(f"the package {missing} is not installed; {how_to_get(extra)}")
        sys.exit(2)
    except Exception as error:
        reason = _file_trouble(error)
        if reason is None:
            raise
        complain(reason)
        sys.exit(2)


def _file_trouble(error: Exception) -> str | None:
    """What to say of a file that cannot be had, or of a disk that takes nothing more; None of any other error."""
    if isinstance(error, OSError) and error.filename is not None:
        return f"{error.filename}: {error.strerror}"
    code = error.errno if isinstance(error, OSError) else _rust_code(error)
    # How numpy says that not all was written.
    is_short = isinstance(error, OSError) and code is None and "requested and" in str(error)
    if not is_short and code not in NOT_WRITTEN:
        return None
    return (
        f"not everything could be written ({error if code is None else os.strerror(code)}); make room and run it again"
    )


def _rust_code(error: Exception) -> int | None:
    """The system's number for what went wrong, as libraries in Rust give it: weights are written by one of them, whose
    errors are no OSErrors."""
    found = re.search(r"\(os error (\d+)\)", str(error))
    return int(found[1]) if found else None
