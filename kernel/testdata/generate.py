"""Writes testdata/vectors: the conformance vectors that pure Go, SIMD, CUDA and Python read.

Run from the repository root: python kernel/testdata/generate.py [FOLDER] [--quick]
Files are written to FOLDER instead of testdata/vectors. --quick skips large.json, which takes 30 s.
Needs mpmath (for slerp). The code is independent of the Go code and follows docs/kernels.md. It
computes with rationals and searches linearly.

Files are {"note", "cases": [case, ...]}. Fields of a case:

  times, targets   strings of int64 ns, because JSON numbers end at 2^53
  mode, edge, max_gap, before, after, period, lo
                   options: int64 as strings, float64 as hex bits
  plan             kind (0 zero, 1 copy, 2 blend, 3 window), left, right, weight (float64 hex bits),
                   valid
  data             dtype, rows, cols; strides and base in elements; skip = bytes before the first
                   element; memory = hex bits of each element
  out, want, valid type and rows of the result in C order; "nan" is any NaN
  ulp              tolerance in float32 steps (slerp); absent = equal bits
  error            {class, phrase} instead of a result

vectors/ops has whole operations, FuseOp and FuseGradOp. Further fields:

  series           values, times: tensors (dtype, shape, stride, base in elements, skip = bytes before
                   the memory, memory = hex bits of each element); lengths or offsets (strings); the
                   options above, quats, continuous; epilogue (unit, norm, plane, clip, augment:
                   float32 hex bits)
  targets, clock, epsilon (float64 hex bits)
  gradient         FuseGradOp: the gradient of the result
  out, valid_out   layout of the results; without valid_out C order. Memory between their elements
                   stays a5a5…
  counts           numbers of overflows and of NaN that became 0, which are added
  slack            tolerance of want by column, and then also one step of its type; absent = equal
                   bits
"""

import os, sys

from vectorgen import batches, epilogues, large_ops, linear, more, op_errors, policies, wide

HERE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "vectors")

if __name__ == "__main__":
    args = [a for a in sys.argv[1:] if a != "--quick"]
    folder = args[0] if args else HERE
    ops = os.path.join(folder, "ops")
    os.makedirs(ops, exist_ok=True)
    for make_file in (
        policies.policies,
        linear.linear,
        linear.moves,
        linear.strides,
        wide.slerp,
        wide.angle,
        wide.mean,
        more.fuse,
        more.scalar,
        more.errors,
        more.large,
    ):
        if make_file is not more.large or "--quick" not in sys.argv:
            make_file(folder)
    for make_file in (
        batches.batches,
        batches.layouts,
        batches.streams,
        batches.clocks,
        epilogues.epilogues,
        epilogues.augments,
        epilogues.gradients,
        op_errors.errors,
    ):
        make_file(ops)
    if "--quick" not in sys.argv:
        large_ops.large(ops)
