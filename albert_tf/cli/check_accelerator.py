"""Checks training on this machine and writes a report.

It lists the devices and compares training steps of a small model with recorded numbers: in each
precision, with and without XLA, on one device and on all devices. It then times ALBERT-base on GPUs
or TPUs, and trains a small model for 200 steps (20 on a CPU). Please attach the report to bug
reports. The exit status is 0 if all checks passed.

    albert_tf check_accelerator --output_dir=report
"""

from dataclasses import dataclass

from albert_tf.cli.app import command
from albert_tf.cli.flags import Flags
from albert_tf.data.errors import UserError
from albert_tf.settings import Settings, required, setting


@dataclass(frozen=True, kw_only=True)
class CheckSettings(Settings):
    """Settings of `check_accelerator`."""

    use_tpu: bool = setting(False, "Devices")("Check the TPU of this machine.")
    full: bool = setting(False, "Devices")("Also time ALBERT-base if there is only a CPU.")
    output_dir: str = required("Output")("Directory for the report.")


def run(settings: CheckSettings) -> None:
    from albert_tf.tools.check_accelerator import REPORT_FILE, check_accelerator

    checks = check_accelerator(settings.output_dir, full=settings.full, use_tpu=settings.use_tpu)
    failed = [check.name for check in checks if check.passed is False]
    if failed:
        raise UserError(
            f"{len(failed)} of {len(checks)} checks failed ({'; '.join(failed)}): see "
            f"{settings.output_dir}/{REPORT_FILE}"
        )
    print(f"All checks passed: {settings.output_dir}/{REPORT_FILE}")


main = command(__name__, __doc__, Flags(CheckSettings), run)
