"""The command line: `rosmo COMMAND`, with each command in a file of `rosmo/commands/`."""

import argparse
import sys
from collections.abc import Sequence

_MISTAKES = (ValueError, TypeError, KeyError, OSError, ImportError, FloatingPointError)
_GIN_ADDS = "\n  In call to configurable"


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command; a mistake of the user ends in one sentence, not in a traceback."""
    args = parser().parse_args(arguments)
    try:
        args.run(args)
    except KeyboardInterrupt as stop:
        print(f"rosmo: {str(stop) or 'stopped'}", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of our output has seen enough
        sys.stderr.close()
        return 0
    except Exception as error:
        if args.debug:
            raise
        message = str(error.args[0] if isinstance(error, KeyError) and error.args else error)
        message = message.partition(_GIN_ADDS)[0]
        if not isinstance(error, _MISTAKES):
            message = f"{type(error).__name__}: {message} (--debug shows where)"
        print(f"rosmo: {message}", file=sys.stderr)
        return 1
    return 0


def parser() -> argparse.ArgumentParser:
    """Returns the parser of all commands."""
    try:
        from rosmo import commands
    except ModuleNotFoundError as error:
        raise SystemExit(
            f'rosmo: the command line needs more packages: pip install "rosmo[run]" ({error})'
        ) from error
    root = argparse.ArgumentParser(
        prog="rosmo", description="Offline reinforcement learning with a learned model."
    )
    subparsers = root.add_subparsers(title="commands", required=True, metavar="COMMAND")
    for name, module in commands.by_name().items():
        about = (module.__doc__ or "").splitlines()[0]
        command = subparsers.add_parser(name, help=about, description=about)
        command.add_argument("--debug", action="store_true", help="show where an error comes from")
        module.add_arguments(command)
        command.set_defaults(run=module.run)
    return root


if __name__ == "__main__":
    sys.exit(main())
