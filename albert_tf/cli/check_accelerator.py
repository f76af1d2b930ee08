"""Checks training on this machine and writes a report.

It lists the devices and compares training steps of a small model with recorded numbers: in each
precision, with and without XLA, on one device and on all devices. It then times ALBERT-base on GPUs
or TPUs, and trains a small model for 200 steps (20 on a CPU). Please attach the report to bug
reports. The exit status is 0 if all checks passed.

    albert_tf check_accelerator --output_dir=report
"""

from absl import flags

from albert_tf.cli.app import command
from albert_tf.cli.flags import Flag, Groups
from albert_tf.data.errors import UserError

FLAGS: Groups = {
    "Devices": {
        Flag("use_tpu", False): "Check the TPU of this machine.",
        Flag("full", False): "Also time ALBERT-base if there is only a CPU.",
    },
    "Output": {Flag("output_dir", required=True): "Required. Directory for the report."},
}


def run() -> None:
    from albert_tf.tools.check_accelerator import REPORT_FILE, check_accelerator

    values = flags.FLAGS
    checks = check_accelerator(values.output_dir, full=values.full, use_tpu=values.use_tpu)
    failed = [check.name for check in checks if check.passed is False]
    if failed:
        raise UserError(
            f"{len(failed)} of {len(checks)} checks failed ({'; '.join(failed)}): see "
            f"{values.output_dir}/{REPORT_FILE}"
        )
    print(f"All checks passed: {values.output_dir}/{REPORT_FILE}")


main = command(__name__, __doc__, FLAGS, run)
