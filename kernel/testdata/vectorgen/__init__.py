"""Parts of generate.py and generate_voxels.py: numbers, plans, values, and the cases by topic.

Nothing here uses the Go code. The rules are those of docs/kernels.md. Short names:

    B, S, T, D      entries of the batch, samples, targets, columns
    s, t            timestamps; targets, or one target
    dt, out, fmt    type of the data, type of the result, format of a computation
    o, rule         options of the rule: mode, edge, max_gap, before, after, period, lo
    l, r, w, v      plan row: left sample, right sample, weight, validity
    rng             random numbers with a fixed seed; their order is part of the vectors
"""
