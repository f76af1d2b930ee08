"""Compiles a program for a GPU or TPU that is not present. `benchmarks.compiled_step` runs this.

The compilers are part of JAX. It is installed in a separate directory, because JAX and TensorFlow
require conflicting versions of shared packages:

    python -S benchmarks/xla_compiler.py JAX_SITE PROGRAM TARGET NUM_REPLICAS COMPILED

JAX_SITE is a directory created as described in `benchmarks.compiled_step`. PROGRAM is a serialized
`HloModuleProto`. TARGET is the topology of a TPU, such as v5e:2x2, or the path of the description
of a GPU. The optimized module is written to COMPILED. Its memory and the time are printed as JSON.
If TARGET is "stablehlo", nothing is compiled, and COMPILED is the program as portable StableHLO.
"""

import json
import math
import os
import re
import sys
import time
from pathlib import Path


def use_tpu_generator(text: str) -> str:
    """Replaces the random generator Philox with the default generator of TPUs.

    TensorFlow does the same when it compiles for a TPU. The states of the two generators have
    different sizes.
    """
    count = 0

    def replacement(match: re.Match[str]) -> str:
        nonlocal count
        count += 1
        indent, state, bits, operand, rest = match.groups()
        name = f"{indent}%tpu_{count}"
        return (
            f"{name}_in = stablehlo.slice {operand} [0:2] : (tensor<3xui64>) -> tensor<2xui64>\n"
            f"{name}_out, {bits} = stablehlo.rng_bit_generator %tpu_{count}_in, "
            f"algorithm = DEFAULT : (tensor<2xui64>) -> (tensor<2xui64>, {rest}\n"
            f"{name}_head = stablehlo.slice %tpu_{count}_out [0:1] : "
            f"(tensor<2xui64>) -> tensor<1xui64>\n"
            f"{indent}{state} = stablehlo.concatenate %tpu_{count}_out, %tpu_{count}_head, "
            f"dim = 0 : (tensor<2xui64>, tensor<1xui64>) -> tensor<3xui64>"
        )

    generator = (
        r"( *)(%\w+), (%\w+) = stablehlo\.rng_bit_generator (%\w+), algorithm = +PHILOX : "
        r"\(tensor<3xui64>\) -> \(tensor<3xui64>, (.*)"
    )
    return re.sub(generator, replacement, text)


def main(site: str, program: str, target: str, num_replicas: str, compiled: str) -> None:
    """Compiles `program` and writes the result to `compiled`."""
    sys.path.insert(0, site)
    os.environ["JAX_SKIP_CUDA_CONSTRAINTS_CHECK"] = "1"
    os.environ["XLA_FLAGS"] = "--xla_gpu_autotune_level=0"  # kernels cannot be timed
    os.environ["JAX_PLATFORMS"] = "cpu"
    os.environ["TPU_SKIP_MDS_QUERY"] = "1"  # do not query the metadata server of a TPU machine
    os.environ["ALLOW_MULTIPLE_LIBTPU_LOAD"] = "1"  # two compilers may run at the same time
    import numpy as np
    from jax._src.interpreters.mlir import make_ir_context
    from jax._src.lib import _jax, xla_client
    from jax.experimental.topologies import get_topology_desc
    from jaxlib.mlir import ir
    from jaxlib.mlir.dialects import stablehlo

    computation = xla_client.XlaComputation(Path(program).read_bytes())
    text = _jax.mlir.xla_computation_to_mlir_module(computation)
    # TensorFlow's snapshots of values are copies, which the importer does not support.
    text = re.sub(r"mhlo\.copy\b", "stablehlo.optimization_barrier", text)
    if target == "stablehlo":
        module = ir.Module.parse(text, context=make_ir_context())
        version = stablehlo.get_minimum_version()
        Path(compiled).write_bytes(stablehlo.serialize_portable_artifact(module, version))
        return
    count = int(num_replicas)
    is_tpu = not Path(target).is_file()
    if is_tpu:
        chips = math.prod(int(n) for n in target.split(":")[1].split("x"))
        # By default, a host has 2 x 2 chips, and smaller topologies are rejected.
        host = {"chips_per_host_bounds": (1, 1, 1)} if chips == 1 else {}
        topology = get_topology_desc(platform="tpu", topology_name=target, **host)
    else:
        description = Path(target).read_text()
        topology = get_topology_desc("", "cuda", target_config=description, topology=f"1x1x{count}")
    devices = topology.devices[:count]
    text = use_tpu_generator(text) if is_tpu else text
    module = ir.Module.parse(text, context=make_ir_context())
    options = xla_client.CompileOptions()
    options.num_replicas, options.num_partitions = count, 1
    options.device_assignment = xla_client.DeviceAssignment.create(np.arange(count)[:, None])
    start = time.perf_counter()
    executable = devices[0].client.compile(module, xla_client.DeviceList(tuple(devices)), options)
    seconds = time.perf_counter() - start
    Path(compiled).write_bytes(executable.hlo_modules()[0].as_serialized_hlo_module_proto())
    memory = executable.get_compiled_memory_stats()
    print(
        json.dumps(
            {
                "arguments": memory.argument_size_in_bytes,
                "temporaries": memory.temp_size_in_bytes,
                "seconds": seconds,
            }
        )
    )


if __name__ == "__main__":
    main(*sys.argv[1:])
