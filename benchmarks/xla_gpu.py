"""Compiles a program for a GPU that is not present. `benchmarks.compiled_step` runs this script.

XLA's compiler for GPUs is part of JAX, which is installed in a separate directory, because its
versions of shared packages conflict with those of TensorFlow:

    python -S benchmarks/xla_gpu.py JAX_SITE HLO TARGET COMPILED

JAX_SITE is a directory created with `pip install --no-deps --target=JAX_SITE --requirement
benchmarks/jax.txt`, HLO is a serialized `HloModuleProto`, and TARGET is the description of the GPU.
The optimized module is written to COMPILED. Its memory and the time are printed as JSON.
"""

import json
import os
import re
import sys
import time
from pathlib import Path


def main(site: str, program: str, target: str, compiled: str) -> None:
    """Compiles `program` and writes the result to `compiled`."""
    sys.path.insert(0, site)
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
    # Without a device, kernels cannot be timed, so autotuning is off.
    os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"
    from jax._src.interpreters.mlir import make_ir_context
    from jax._src.lib import _jax, xla_client
    from jax.experimental.topologies import get_topology_desc
    from jaxlib.mlir import ir

    description = Path(target).read_text()
    topology = get_topology_desc("", "cuda", target_config=description, topology="1x1x1")
    devices = topology.devices
    computation = xla_client.XlaComputation(Path(program).read_bytes())
    text = _jax.mlir.xla_computation_to_mlir_module(computation)
    # TensorFlow exports barriers as copies, an operation that the importer does not support.
    text = re.sub(r"mhlo\.copy\b", "stablehlo.optimization_barrier", text)
    module = ir.Module.parse(text, context=make_ir_context())
    start = time.perf_counter()
    executable = devices[0].client.compile(
        module, xla_client.DeviceList(tuple(devices)), xla_client.CompileOptions()
    )
    seconds = time.perf_counter() - start
    Path(compiled).write_bytes(executable.hlo_modules()[0].as_serialized_hlo_module_proto())
    memory = executable.get_compiled_memory_stats()
    print(json.dumps({"temporaries": memory.temp_size_in_bytes, "seconds": seconds}))


if __name__ == "__main__":
    main(*sys.argv[1:])
