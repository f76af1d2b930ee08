"""Reads programs that XLA has compiled: bytes, operations and cycles of each kernel."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from tensorflow.compiler.xla.service import hlo_pb2

_MOVES_NOTHING = {"parameter", "constant", "bitcast", "tuple", "get-tuple-element", "after-all"}
_BITS = {"PRED": 8, "S4": 4, "U4": 4, "C64": 64, "C128": 128, "TOKEN": 0, "OPAQUE_TYPE": 0}


class Kernel(NamedTuple):
    """One operation of a compiled program.

    Attributes:
        name: name of the operation in the program.
        bytes: read from and written to the memory of the device, with the padding of tiles.
        operations: floating-point operations of matrix products; 0 for TPUs, whose compiler
            replaces the products.
        cycles: the compiler's estimate, only for TPUs; otherwise 0.
        runs: number of executions in one run of the program.
        reduced: bytes that are added over all devices.
    """

    name: str
    bytes: int
    operations: int
    cycles: int
    runs: int
    reduced: int = 0


def kernels(module: hlo_pb2.HloModuleProto) -> list[Kernel]:
    """Returns the executed operations. A conditional counts as its branch with the most bytes."""
    computations = {computation.id: computation for computation in module.computations}
    return list(_kernels(computations[module.entry_computation_id], computations, 1))


def product_operations(module: hlo_pb2.HloModuleProto) -> int:
    """Returns the floating-point operations of all matrix products, before optimizations."""
    return sum(kernel.operations * kernel.runs for kernel in kernels(module))


def _kernels(computation: Any, computations: Mapping[int, Any], runs: int) -> Iterator[Kernel]:
    by_id = {instruction.id: instruction for instruction in computation.instructions}
    for one in computation.instructions:
        called = [computations[number] for number in one.called_computation_ids]
        if one.opcode in _MOVES_NOTHING or one.opcode.endswith("-done"):
            continue
        if one.opcode == "while":
            body = next(c for c in called if _root(c).shape.tuple_shapes)
            yield from _kernels(body, computations, runs * _trip_count(one, computations))
        elif one.opcode == "conditional":
            yield from max(
                ([*_kernels(branch, computations, runs)] for branch in called),
                key=lambda branch: sum(kernel.bytes for kernel in branch),
            )
        elif one.opcode in ("all-reduce", "all-reduce-start"):
            operands = [by_id[number] for number in dict.fromkeys(one.operand_ids)]
            moved = 2 * sum(_size_on_device(operand.shape) for operand in operands)
            reduced = sum(_size(array) for o in operands for array in _arrays(o.shape))
            yield Kernel(one.name, moved, 0, 0, runs, reduced)
        elif one.opcode == "call" or (one.opcode.endswith("-start") and called):
            for inner in called:
                yield from _kernels(inner, computations, runs)
        elif one.opcode == "copy-start":  # between two memories of a TPU
            target, source = list(_arrays(one.shape))[:2]
            moved = _size(source) if 0 in map(_memory_space, (target, source)) else 0
            yield Kernel(one.name, moved, 0, 0, runs)
        else:
            operands = [by_id[number] for number in dict.fromkeys(one.operand_ids)]
            inner = called[0] if one.opcode == "fusion" else None
            read = sum(_read(one, operand, inner) for operand in operands)
            cycles = re.search(r'"estimated_cycles":"(\d+)"', _backend_config(one))
            yield Kernel(
                one.name,
                read + _written(one, inner),
                _operations(one, by_id, computations),
                int(cycles[1]) if cycles else 0,
                runs,
            )


def _backend_config(one: Any) -> str:
    config = one.backend_config
    return config.decode(errors="replace") if isinstance(config, bytes) else config


def _trip_count(loop: Any, computations: Mapping[int, Any]) -> int:
    known = re.search(r'"known_trip_count":\{"n":"(\d+)"', _backend_config(loop))
    if known:
        return int(known[1])
    # Loops of this package count from 0 to a constant in the condition.
    called = [computations[number] for number in loop.called_computation_ids]
    condition = next(c for c in called if not _root(c).shape.tuple_shapes)
    return max(_integers(condition, computations))


def _integers(computation: Any, computations: Mapping[int, Any]) -> Iterator[int]:
    for one in computation.instructions:
        yield from one.literal.s32s
        for number in one.called_computation_ids:
            yield from _integers(computations[number], computations)


def _root(computation: Any) -> Any:
    return next(i for i in computation.instructions if i.id == computation.root_id)


def _arrays(shape: Any) -> Iterator[Any]:
    for inner in shape.tuple_shapes:
        yield from _arrays(inner)
    if not shape.tuple_shapes:
        yield shape


def _memory_space(array: Any) -> int:
    """0 is the memory of the device, other numbers are smaller memories on the chip."""
    return array.layout.memory_space


def _size(array: Any) -> int:
    """Returns the bytes of an array in memory, with its minor dimensions padded to whole tiles."""
    element = type(array).DESCRIPTOR.fields_by_name["element_type"].enum_type
    name = element.values_by_number[array.element_type].name
    bits = _BITS.get(name)
    if bits is None:
        bits = int("".join(filter(str.isdigit, name.split("E")[0])) or 0)
    dimensions = [array.dimensions[i] for i in array.layout.minor_to_major] or [1]
    if array.layout.tiles:
        tile = list(array.layout.tiles[0].dimensions)[::-1]
        dimensions += [1] * (len(tile) - len(dimensions))
        dimensions[: len(tile)] = [
            -(-size // unit) * unit for size, unit in zip(dimensions, tile, strict=False)
        ]
    return math.prod(dimensions) * bits // 8


def _size_on_device(shape: Any) -> int:
    return sum(_size(array) for array in _arrays(shape) if _memory_space(array) == 0)


def _read(one: Any, operand: Any, inner: Any | None) -> int:
    """Returns the bytes that an operation reads from an operand. A slice reads only its result."""
    whole = _size_on_device(operand.shape)
    if inner is None:
        is_slice = one.opcode in ("dynamic-slice", "slice", "gather")
        return min(whole, sum(map(_size, _arrays(one.shape)))) if is_slice else whole
    number = list(one.operand_ids).index(operand.id)
    start = next(
        i for i in inner.instructions if i.opcode == "parameter" and i.parameter_number == number
    )
    read, names = 0, [start.id]
    for name in names:
        for user in (i for i in inner.instructions if name in i.operand_ids):
            is_first = name == user.operand_ids[0]
            if user.opcode == "bitcast":
                names.append(user.id)
            elif user.opcode in ("dynamic-slice", "slice", "gather") and is_first:
                read += _size(user.shape)
            elif not (user.opcode == "dynamic-update-slice" and is_first):
                return whole
    return min(read, whole)


def _written(one: Any, inner: Any | None) -> int:
    """Returns the bytes that an operation writes. In-place updates write only the new part."""
    if inner is None:
        return _size_on_device(one.shape)
    by_id = {i.id: i for i in inner.instructions}
    root = by_id[inner.root_id]
    results = [by_id[n] for n in root.operand_ids] if root.opcode == "tuple" else [root]
    total = 0
    for result, array in zip(results, _arrays(one.shape), strict=False):
        while result.opcode == "bitcast":
            result = by_id[result.operand_ids[0]]
        if _memory_space(array) == 0:
            updates = result.opcode == "dynamic-update-slice"
            total += _size(by_id[result.operand_ids[1]].shape if updates else array)
    return total


def _operations(one: Any, by_id: Mapping[int, Any], computations: Mapping[int, Any]) -> int:
    """Returns the floating-point operations of the matrix products in one operation."""
    if one.opcode == "fusion":
        inner = computations[one.called_computation_ids[0]].instructions
        ids = {i.id: i for i in inner}
        return sum(_operations(i, ids, computations) for i in inner)
    shapes = [list(by_id[n].shape.dimensions) for n in one.operand_ids]
    if one.opcode == "dot":
        contracted = one.dot_dimension_numbers.lhs_contracting_dimensions
        return 2 * math.prod(one.shape.dimensions) * math.prod(shapes[0][d] for d in contracted)
    if "gemm" in one.custom_call_target or "matmul" in one.custom_call_target:
        config = json.loads(one.backend_config)["gemm_backend_config"]["dot_dimension_numbers"]
        contracted = [int(d) for d in config["lhs_contracting_dimensions"]]
        result = one.shape.tuple_shapes[0] if one.shape.tuple_shapes else one.shape
        return 2 * math.prod(result.dimensions) * math.prod(shapes[0][d] for d in contracted)
    if one.custom_call_target.startswith("__cudnn$fmha"):
        # Two products forward; five backward, which computes the scores again.
        B, N, S, D = shapes[0]
        return (10 if one.custom_call_target.endswith("Backward") else 4) * B * N * S * S * D
    return 0
