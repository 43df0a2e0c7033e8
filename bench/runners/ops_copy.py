"""The limit on the CPU as Python has it: copying as many bytes as the row touches (half of them read, half written)."""
import ops_common as ops

KINDS = ("fuse", "voxelize", "copy")


@ops.arm("memcpy numpy", KINDS, setting="np.copyto, one thread", other=True)
def numpy_copy(row, x):
    import numpy as np

    if row.get("threads", 1) > 1:
        raise ops.Skip()
    src = np.zeros(max(row["bytes"] // 2, 1), np.uint8)
    dst = np.ones_like(src)
    return lambda: np.copyto(dst, src)


@ops.arm("memcpy torch", KINDS, setting="copy_", other=True)
def torch_copy(row, x):
    import torch

    src = torch.zeros(max(row["bytes"] // 8, 1), dtype=torch.int32)
    dst = torch.ones_like(src)
    return lambda: dst.copy_(src)


if __name__ == "__main__":
    ops.serve()
