"""Runs of `run_pretraining.py`, one process after the other, for the models of the comparisons."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Mapping, Sequence

from absl import logging

from albert_tf.ablations.comparisons import BASE, Variant
from albert_tf.ablations.picture import draw_curves
from albert_tf.ablations.results import (
    SENTENCE_METRICS,
    AblationRun,
    finished_step,
    read_run,
    run_name,
    write_results,
)
from albert_tf.config import AlbertConfig

_EVALUATIONS = 10  # points of a curve unless --save_checkpoints_steps says otherwise
_LAST_LINES = 5  # of a failed run, to be shown

Records = Mapping[str, tuple[Sequence[str], Sequence[str]]]  # to train and evaluate on, by the loss


Job = tuple[Variant, int]  # a model and a seed


def ordered_jobs(
    variants: Sequence[Variant], seeds: Sequence[int], base_seeds: Sequence[int]
) -> list[Job]:
    """The runs in their order; see `Ablations.run`."""
    jobs = [(variant, seed) for seed in dict.fromkeys(seeds) for variant in variants]
    jobs += [(variants[0], seed) for seed in dict.fromkeys(base_seeds) if seed not in seeds]
    return sorted(jobs, key=lambda job: job[0].name != BASE)  # its noise is known first


class Ablations:
    """The runs below one directory.

    Args:
        output_dir: takes `configs/`, a directory and a log for each run, and the results.
        base: the model that all are variants of.
        records: by sentence loss.
        num_train_steps: of every run.
        training_flags: further flags of every run.
    """

    def __init__(
        self,
        output_dir: str,
        base: AlbertConfig,
        records: Records,
        num_train_steps: int,
        training_flags: Sequence[str],
    ) -> None:
        self._output_dir = output_dir
        self._base = base
        self._records = records
        self._num_train_steps = num_train_steps
        self._training_flags = list(training_flags)

    def run(
        self,
        variants: Sequence[Variant],
        seeds: Sequence[int],
        base_seeds: Sequence[int],
        *,
        compare_losses: bool,
    ) -> None:
        """Trains what is not finished; writes the results after each run.

        Args:
            variants: the base first.
            seeds: of every model.
            base_seeds: further ones of the base.
            compare_losses: evaluate the models of both sentence losses on the records of the other.

        Raises:
            ValueError: runs failed; the others have been done.
        """
        jobs = ordered_jobs(variants, seeds, base_seeds)
        failed, table = [], ""
        for number, (variant, seed) in enumerate(jobs, start=1):
            name = run_name(variant, seed)
            logging.info("run %d/%d: %s", number, len(jobs), name)
            if not self._finish(variant, seed, compare_losses):
                failed.append(name)
            table = self._write(jobs)
        print(table, end="")
        if failed:
            raise ValueError(
                f"{len(failed)} of {len(jobs)} runs failed: {', '.join(failed)}. Their logs are in "
                f"{self._output_dir}; started again, the command does what is missing."
            )

    def try_out(self, jobs: Sequence[Job], base_file: str) -> None:
        """Tries one run of each sentence loss dry, as all its runs read the same files.

        Args:
            jobs: the runs.
            base_file: configuration of the base, which is tried.

        Raises:
            ValueError: the run would fail.
        """
        tried: set[str] = set()
        for variant, seed in jobs:
            loss, name = variant.sentence_loss, run_name(variant, seed)
            if loss in tried or variant.changes:
                continue
            tried.add(loss)
            command = [*self._command(*self._own_flags(variant, seed, base_file)), "--dry_run"]
            ended = subprocess.run(
                command, capture_output=True, text=True, env=_environment(), check=False
            )
            if ended.returncode:
                said = ended.stderr[ended.stderr.rfind("error: ") :].strip()
                raise ValueError(f"{name} would fail: {said.removeprefix('error: ')}")

    def _finish(self, variant: Variant, seed: int, compare_losses: bool) -> bool:
        """Trains and evaluates a model, as far as that has not been done; returns success."""
        name = run_name(variant, seed)
        path = self._path(name)
        if finished_step(path) < self._num_train_steps:
            config = self._path("configs", f"{variant.name}.json")
            variant.config(self._base).to_json_file(config)
            if not self._pretrain(name, *self._own_flags(variant, seed, config)):
                return False
        if not compare_losses:
            return True
        return all(self._evaluate(name, loss, path) for loss in self._other_losses(variant))

    def _own_flags(self, variant: Variant, seed: int, config_file: str) -> list[str]:
        """Flags of the training of one model."""
        train, held_out = self._records[variant.sentence_loss]
        return [
            f"--input_file={','.join(train)}",
            f"--eval_input_file={','.join(held_out)}",
            f"--output_dir={self._path(run_name(variant, seed))}",
            f"--albert_config_file={config_file}",
            f"--sentence_loss={variant.sentence_loss}",
            f"--seed={seed}",
        ]

    def _other_losses(self, variant: Variant) -> list[str]:
        """Those on whose records it says something to evaluate this model."""
        if variant.comparison not in (BASE, "sentence_loss"):
            return []
        losses = [loss for loss in SENTENCE_METRICS if loss in self._records]
        return [loss for loss in losses if loss != variant.sentence_loss in losses]

    def _evaluate(self, name: str, loss: str, path: str) -> bool:
        """Evaluates a trained model as one of another sentence loss."""
        folder = self._other_path(name, loss)
        if finished_step(folder) == self._num_train_steps:
            return True
        held_out = ",".join(self._records[loss][1])
        return self._pretrain(
            name,
            "--nodo_train",
            f"--input_file={held_out}",
            f"--output_dir={folder}",
            f"--albert_config_file={path}/albert_config.json",
            f"--eval_checkpoint={path}/model.ckpt-{self._num_train_steps}",
            f"--sentence_loss={loss}",
        )

    def _pretrain(self, name: str, *arguments: str) -> bool:
        """Runs `run_pretraining.py`, which prints into a file; returns whether it went well."""
        log = self._path(f"{name}.log")
        command = self._command(*arguments)
        os.makedirs(self._output_dir, exist_ok=True)
        with (
            open(log, "ab") as file,
            # In a session of its own: a signal reaches it once, from here, and its step is saved.
            subprocess.Popen(
                command, stdout=file, stderr=file, env=_environment(), start_new_session=True
            ) as process,
        ):
            try:
                code = process.wait()
            except BaseException:
                process.terminate()
                raise
        if code:
            logging.error("%s ended with status %d:\n%s", name, code, _last_lines(log))
        return code == 0

    def _command(self, *arguments: str) -> list[str]:
        often = max(1, self._num_train_steps // _EVALUATIONS)
        return [
            *(sys.executable, "-m", "albert_tf.cli.run_pretraining"),
            *(f"--save_checkpoints_steps={often}", "--keep_checkpoint_max=2"),
            *(*self._training_flags, "--do_eval", *arguments),
            f"--num_train_steps={self._num_train_steps}",
        ]

    def _write(self, jobs: Sequence[Job]) -> str:
        runs: list[AblationRun] = []
        for variant, seed in jobs:
            name = run_name(variant, seed)
            others = {loss: self._other_path(name, loss) for loss in self._other_losses(variant)}
            run = read_run(variant, seed, self._base, self._path(name), others)
            if run and run.steps == self._num_train_steps:
                runs.append(run)
        return write_results(self._output_dir, runs, draw_curves(runs)) if runs else ""

    def _other_path(self, name: str, loss: str) -> str:
        return self._path(name, f"as_{loss}")

    def _path(self, *names: str) -> str:
        return os.path.join(self._output_dir, *names)


def _environment() -> dict[str, str]:
    """The same, with this package found first, wherever the command was started."""
    root = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}


def _last_lines(path: str) -> str:
    with open(path, encoding="utf-8", errors="replace") as file:
        return "".join(file.readlines()[-_LAST_LINES:])
