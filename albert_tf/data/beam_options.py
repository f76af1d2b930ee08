"""Apache Beam's own options, checked: Beam itself passes over an unknown one with a warning."""

from collections.abc import Sequence

from apache_beam.options.pipeline_options import PipelineOptions
from apache_beam.runners.portability.portable_runner import PortableRunner
from apache_beam.runners.runner import create_runner

# Beam's DirectRunner tries another runner first, which it downloads.
_RUNNERS = {"directrunner": "apache_beam.runners.portability.fn_api_runner.FnApiRunner"}


def beam_options(runner: str, arguments: Sequence[str]) -> PipelineOptions:
    """Turns Beam's own options into its object for them.

    Args:
        runner: Beam's name of the runner.
        arguments: options such as "--region=us-east1".

    Raises:
        ValueError: the runner or an option is unknown. Runners with a job server have options that
            only the server knows; these are passed on.
    """
    name = _RUNNERS.get(runner.lower(), runner)
    try:
        runner_class = type(create_runner(name))
    except (ValueError, ImportError, AttributeError) as error:
        raise ValueError(f"--runner={runner}: {error}") from error
    _check_arguments(arguments, has_server=issubclass(runner_class, PortableRunner))
    return PipelineOptions([*arguments, f"--runner={name}"])


def is_local(runner: str) -> bool:
    """Whether a runner works in this process and those that end with it."""
    return runner.lower() in _RUNNERS


def _check_arguments(arguments: Sequence[str], has_server: bool) -> None:
    previous = "="
    for argument in arguments:
        if not argument.startswith("-") and (not previous.startswith("--") or "=" in previous):
            raise ValueError(f"{argument!r} is no option of Beam; write --name=value after the --.")
        previous = argument
    options = PipelineOptions(list(arguments))
    if options.get_all_options().get("runner"):
        raise ValueError("--runner goes before the --, among the flags of this command.")
    known = options.get_all_options().keys()
    unknown = options.get_all_options(retain_unknown_options=True).keys() - known
    if unknown and not has_server:
        names = ", ".join(f"--{name}" for name in sorted(unknown))
        raise ValueError(f"Beam has no option {names}. Its options follow the --, as --name=value.")
