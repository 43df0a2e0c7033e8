// Package kernel defines the result of each operation, to the bit, and contains the reference
// implementation in pure Go.
//
// Faster back ends (SIMD, CUDA) are in the folders below and must produce the same results. The
// conformance vectors in testdata/vectors are shared by all back ends and the Python client.
//
// NaN means any NaN: its payload is not part of the contract. Slerp is exact to 1 float32 ulp.
// All other results are exact to the bit.
//
// # Contract: plans and resampling
//
//	kernel.K1   A Plan is a list of rows (kind, left, right, weight, valid). It holds everything
//	            that depends on time. It is computed once (NewPlan) and applied to every stream
//	            with the same timestamps.
//	kernel.K2   Linear, weight 0: the stored bits of the left sample.
//	            Linear, other weights: fma(w, v1-v0, v0) in float32. w and v1-v0 are rounded to
//	            float32; the result is rounded once to the output type (nearest even).
//	            For float64 the same is computed in float64 with the unrounded weight.
//	kernel.K3   FMA32 is the exactly rounded float32 fused multiply-add under every GOAMD64 and
//	            GOARCH.
//	kernel.K4   previous, next, nearest and every exact hit copy values of any type bit by bit.
//	kernel.K5   Slerp, angle and mean compute in float64 with the unrounded weight. They round once
//	            to the output type.
//	kernel.K6   Slerp works on groups of four channels. If the norm of a group is zero or not
//	            finite, the group becomes NaN and the row is invalid.
//	kernel.K7   Integers under a computing mode are Misuse unless the output is floating point.
//	            Booleans are never computed with.
//	kernel.K8   Any strides are legal: 0, negative, with gaps, and unaligned bases. Sources are
//	            never written. Any extent may be 0.
//	kernel.K9   Zero rows (policy mask, or a stream without samples) are zero bits of the output
//	            type. No epilogue changes them.
//	kernel.K12  Resample does not allocate.
//	kernel.K13  Times are int64 ns inside ±2^62. Seconds become rint(float64(t)·1e9) ns, where the
//	            product is rounded to float64. NaN and Inf are Malformed. Timestamps must not
//	            decrease; targets may be in any order.
//	kernel.K14  Under AsGiven, times are float64 seconds and are used unchanged. Differences are
//	            float64, the weight is (t-t0)/((t1-t0)+Epsilon), and max_gap is divided by 1e9.
//	            linear, slerp and angle use the interval t0 < t ≤ t1, with the first of equal
//	            timestamps on the right. A target at the first timestamp is that sample.
//	            previous, next and nearest treat an exact hit as they do in ns. Mean is Misuse.
//	kernel.K15  Extrapolation uses the line through the samples at the two nearest distinct
//	            timestamps. Of equal timestamps it uses the last. With fewer than two distinct
//	            timestamps it repeats the sample at the edge.
//	kernel.K20  Continuous signs: from the second sample of an entry on, a quaternion is negated
//	            (its sign bits flip) if its dot product with its predecessor is < 0. The
//	            predecessor is the one that was written, negated or not. Products and sums are
//	            float64, in the order of the channels. If the dot product is 0 or NaN, nothing is
//	            negated.
//	kernel.K21  Rotations in other forms (rotation vectors, Euler angles; robocache.Rotation) are
//	            converted to quaternions in float64, blended by slerp, and converted back. Of all
//	            vectors or angles for the blended rotation, the result is the one nearest to the
//	            straight line between the samples. If both samples are in one branch, the result
//	            is therefore in this branch, above π too. Samples that are hit keep their bits.
//	            Euler angles are undefined if the middle one is ±π/2, or 0 or π; then the
//	            undefined angle is that of the line. Only hosts support this. A GPU returns
//	            Unsupported.
//	kernel.K24  Sum: sample k covers [s[k], s[k+1]). The last sample lasts as long as the step
//	            before it, and a sample at the same timestamp as the next lasts no time.
//	            A row covers [t, t+After); its ends are moved onto a timestamp within 1 ns.
//	            A summed channel is Σ part·value over the samples that the row covers, in float64
//	            and in sample order. part is the fraction of the sample's time that the row
//	            covers; it is 1 for a sample that lasts no time. Without samples the sum is 0.
//	            Other channels are linear at t, by the edge policy.
//	            A row is invalid if it covers only a fraction of a sample longer than max_gap, or
//	            if t lies in a gap or outside the data.
//	            Plans and Resample support this mode. ApplyOp and FuseOp return Unsupported.
//
// # Contract: epilogues and casts
//
//	kernel.K10  An epilogue runs before the only rounding, in the computing type, in this order:
//	            - x/255
//	            - (x-m)/(std+1e-8), or 2(x-lo)/(hi-lo)-1, by real division; a constant channel
//	              becomes 0
//	            - x < lo becomes lo, x > hi becomes hi, and NaN stays
//	            - augmentation (kernel.K16)
//	            - cast
//	            An epilogue needs a floating-point output. The computing type is float32. It is
//	            float64 for float64 data, for integers that are written as float64, and for values
//	            computed by slerp (in channels of quaternions), angle and mean. Samples that these
//	            modes only copy do not count as computed.
//	kernel.K11  Casts to float16 and bfloat16 round to nearest even, overflow to ±Inf, and keep NaN
//	            a NaN. Casts to integers truncate and saturate, and NaN becomes 0. Overflows and
//	            such NaN are counted.
//
// # Contract: augmentation
//
//	kernel.K16  Augmentation draws from Philox4x32-10.
//	            - Key: words 0 and 1 of Philox(counter = epoch low, epoch high, op, 0; key = seed
//	              low, seed high).
//	            - Counter: (purpose<<30 | column>>2, row, sample low, sample high). Purpose is 0
//	              for noise, 1 for dropout, 2 for scale. Row and column count within the sample.
//	              They are 0 if the purpose does not use them.
//	            - uniform(x) = (x>>8)·2^-24.
//	            The steps run in this order; each operation is rounded to the computing type:
//	            - Dropout: the row is zeros if uniform(word 0) < Dropout.
//	            - Scale: x·s with s = ScaleLo + (ScaleHi-ScaleLo)·uniform(word 0) in float32. The
//	              step is skipped if both bounds are 0.
//	            - Noise: fma(Noise, g, x) with the normal number g of the column. Words (0,1) of
//	              its counter give the numbers of columns 4n and 4n+1, words (2,3) those of 4n+2
//	              and 4n+3. They are r·cos(2πu) and r·sin(2πu), with
//	              r = sqrt(-2 ln(((x>>8)+1)·2^-24)) and u = uniform(y), in float64, rounded once to
//	              float32. Other back ends may differ by 2 ulp of the largest normal (2^-20).
//	            Jitter of times is not part of an operation: it is added to the int64 timestamps
//	            before planning.
//	kernel.K22  The draws for an image are a function of (seed, epoch, camera, sample):
//	            ImageAugment.Draw. The Philox key is that of kernel.K16 with the camera's number as
//	            op. The counter is (3<<30 | n, 0, sample low, sample high). n = 0 gives the words
//	            for the crop's row, the crop's column, brightness and contrast. n = 1 gives those
//	            for saturation, hue and rotation. The flip uses word 0 of n = 0 under op 0. Shared
//	            draws use op 2^32-1, except for noise. Only hosts draw.
//	kernel.K23  An image is augmented from bytes to bytes. The steps are a crop with repeated edges,
//	            a filter that scales it (package resize), a rotation, reversed columns for a flip, a
//	            matrix and an offset with 12 fractional bits, noise, one rounding, and a clip. All
//	            but two filters compute in integers; those round every float32 operation. Noise is
//	            the sum of four bytes of a Philox word with the counter
//	            (column>>2, (3·place + channel)·height + row, sample low, sample high).
//	            A table converts the bytes to floats. Section 8 of docs/kernels.md has the formulas.
//
// # Contract: operations
//
//	kernel.K17  Gradient: the accumulator of sample k is acc = fma(c, g, acc), starting from 0,
//	            over the rows that read the sample, in target order. It is float32 (float64 for
//	            float64 values) and is rounded once to the type of Grad. c is 1 for a row that
//	            copies a sample (or has weight 0). In a blend, c is 1-w (rounded) for the left
//	            sample and w for the right one. Zero rows contribute nothing. Rows outside the data
//	            contribute to the samples that they were computed from. Samples that no row reads,
//	            and rows beyond a length, are 0.
//	kernel.K18  An operation's Check rejects wrong shapes, types and strides, and results that share
//	            memory with another tensor. It reads no memory. All back ends call it first, so
//	            that errors are the same on each. Host back ends call CheckHost.
//	kernel.K19  The reference checks all times of an operation before it writes a result. After an
//	            error, the results of another back end are undefined, except under ErrorEdge on the
//	            host.
//
// Intuitively, time is handled once, in a plan, which is like a sparse matrix with at most two
// entries per row. Everything else is arithmetic on rows with exactly specified rounding. Because
// of that, a fast back end can be compared with the slow reference bit by bit.
package kernel
