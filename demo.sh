#!/usr/bin/env bash
# From text to a published model in a few minutes: makes .venv, then runs the demo.
# Arguments go to it, for example: ./demo.sh --output_dir=/tmp/demo --num_train_steps=500
set -euo pipefail
cd "$(dirname "$0")"
. scripts/environment.sh
make_environment requirements.txt
exec "$PYTHON" -m albert_tf.cli.demo "$@"
