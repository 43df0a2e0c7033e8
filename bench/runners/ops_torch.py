"""torch on the CPU: eager and compiled. Its threads are set to the row's; times come as float32 seconds, which is less to move: its better setting."""
import ops_common as ops
import ways_torch as ways


@ops.arm("torch eager", ("fuse",), setting="searchsorted, gather, lerp; times float32 seconds")
def eager(row, x):
    return ways.eager(row, x)


@ops.arm("torch.compile", ("fuse",), setting="the same through inductor, static shapes")
def compiled(row, x):
    return ways.compiled(row, x)


@ops.arm("torch voxels", ("voxelize",), setting="floor, index_add_ / index_fill_ / scatter_reduce_, unique for sparse; points outside go to a cell behind the grid")
def voxels(row, x):
    return ways.eager(row, x)


if __name__ == "__main__":
    ops.serve()
