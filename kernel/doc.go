// Package kernel says what each operation computes, to the bit, and is its pure-Go reference.
// Faster back ends (SIMD, CUDA) live in folders below and agree with it: testdata/vectors holds the
// one set of conformance vectors that all of them and the Python client read.
//
// # Contract
//
//	K1   A Plan is rows of (kind, left, right, weight, valid): everything that time decides. It is made once (NewPlan) and run for every stream on the same timestamps.
//	K2   Linear: weight 0 gives the stored bits of the left sample; else fma(w, v1-v0, v0) in float32 with w rounded to float32, v1-v0 rounded to float32 and one rounding to the output type (nearest even). float64: the same in float64 with the unrounded weight.
//	K3   FMA32 is the exactly rounded float32 fused multiply-add under every GOAMD64 and GOARCH.
//	K4   previous, next, nearest and every exact hit move any type bit by bit.
//	K5   Slerp, angle and mean compute in float64 with the unrounded weight and round once to the output type.
//	K6   Slerp works on groups of four channels; a group whose norm is zero or not finite gives NaN, and the row is invalid.
//	K7   Integers under a computing mode are Misuse unless the output is floating point; booleans are never computed with.
//	K8   Any strides: 0, negative, gaps, and bases that are not aligned. Sources are never written. Any extent may be 0.
//	K9   Zero rows (policy mask, or no sample at all) are zero bits of the output type; no epilogue touches them.
//	K10  Epilogues run before the only rounding, in the computing type, in this order: x/255 · (x-m)/(std+1e-8), or 2(x-lo)/(hi-lo)-1, by real division, a constant channel gives 0 · x < lo → lo, x > hi → hi, NaN stays · augmentation (K16) · cast. An epilogue needs a floating-point output. The computing type is float32; float64 for float64 data, for integers on their way to float64, and for what slerp (the quaternions' channels), angle and mean have computed: not for the samples that they copy.
//	K11  Casts to float16 and bfloat16 round to nearest even, overflow to ±Inf and keep NaN a NaN; casts to integers truncate and saturate, NaN gives 0. Both are counted.
//	K12  Resample does not allocate.
//	K13  Times are int64 ns inside ±2^62. Seconds become rint(float64(t)·1e9) ns, the product rounded to float64; NaN and Inf are Malformed. Timestamps must not decrease; targets may come in any order.
//	K14  Under AsGiven times are seconds in float64 as they are: differences in float64, weight (t-t0)/((t1-t0)+Epsilon), max_gap / 1e9 s. linear, slerp and angle take the interval t0 < t ≤ t1 (the first of equal timestamps on the right); t at the first timestamp is that sample. previous, next and nearest take an exact hit as in ns. Mean is Misuse.
//	K15  Extrapolation takes the line through the samples at the two nearest distinct timestamps: of equal ones the last. With fewer it holds.
//	K16  Augmentation draws from Philox4x32-10. Key: words 0 and 1 of Philox(counter = epoch low, epoch high, op, 0; key = seed low, seed high). Counter: (purpose<<30 | column>>2, row, sample low, sample high); purpose 0 noise, 1 dropout, 2 scale; row and column count inside the sample, and are 0 where they have no part. uniform(x) = (x>>8)·2^-24. In this order, each operation rounded to the computing type: dropout: the row is zeros where uniform(word 0) < Dropout · scale: x·s, s = ScaleLo + (ScaleHi-ScaleLo)·uniform(word 0) in float32, unless both are 0 · noise: fma(Noise, g, x) with g the normal of the column: words (0,1) of its counter make those of columns 4n and 4n+1, words (2,3) those of 4n+2 and 4n+3, as r·cos(2πu), r·sin(2πu) with r = sqrt(-2 ln(((x>>8)+1)·2^-24)) and u = uniform(y), in float64, rounded once to float32; other back ends may be 2 ulp of the largest normal (2^-20) away. Jitter of times is added to the int64 timestamps before planning, and no part of an op.
//	K17  The gradient: sample k gets acc = fma(c, g, acc) over the rows that read it, in target order, from 0, in float32 (float64 for float64 values), rounded once to the type of Grad. c is 1 for a row that is a sample (weight 0 among them), 1-w (rounded) for the left and w for the right sample of a blend. Zero rows pass none; rows outside the data pass theirs to the samples that they are made of. Samples that no row reads, and rows beyond a length, are 0.
//	K18  An op's Check proves shapes, types, strides and that no result lies on another tensor; it looks at no memory. All back ends call it first, so that errors are the same on each; the host's call CheckHost.
//	K19  The reference proves all times of an op before it writes a result. After an error, another back end's results may hold anything, except under ErrorEdge on the host.
//	K20  Continuous signs: from the second sample of an entry on, a quaternion is negated (its sign bits flip) where its dot product with the one before it, negated or not, is < 0: products and sums in float64, in the order of the channels. A product that is 0 or NaN negates nothing.
//	K21  Rotations in other forms (rotation vectors, Euler angles; robocache.Rotation) become quaternions in float64, go through slerp, and are written back in their form: of the vectors and angles that are one rotation the nearest to the straight line between the samples, so that a result goes on in the samples' branch (above π too) where both have one. Samples that are hit keep their bits. Where Euler angles are not defined (the middle one at ±π/2, or 0 or π) the undefined one is the line's. Hosts only: a GPU says Unsupported.
//	K22  What is drawn for an image is a function of (seed, epoch, camera, sample): ImageAugment.Draw. Philox with the key of K16, op the camera's number, and the counter (3<<30 | n, 0, sample low, sample high): n = 0 has words for the crop's row, its column, brightness and contrast, n = 1 for saturation and hue; the flip is word 0 of n = 0 under op 0. Hosts alone draw.
//	K23  An image is augmented in integers, from bytes to bytes: crop with repeated edges, columns reversed by a flip, a matrix and an offset with 12 bits behind the point, noise (the sum of four bytes of a word of Philox, whose counter is (column>>2, (3·place + channel)·height + row, sample low, sample high)), one rounding, clipped. A table makes floats of the bytes. docs/kernels.md, section 8, has the formulas.
//	K24  Sum: sample k covers [s[k], s[k+1]), the last one as long as the step before it, equal timestamps no time. A row covers [t, t+After), its ends moved onto a
//	     timestamp within 1 ns. A summed channel is Σ part·value over the samples that the row covers, in float64 and in their order, where part is the share of
//	     the sample's time that the row covers: 1 of a sample that lasts no time. Without samples it is 0. The other channels are linear at t, by the edge policy.
//	     A row that holds a part, not the whole, of a sample longer than max_gap is not valid, as one is whose t lies in a gap or outside the data. Plans and Resample
//	     have this mode; the ops (ApplyOp, FuseOp) say Unsupported.
//
// NaN means any NaN: its payload is not part of the contract. Slerp is exact to 1 float32 ulp,
// everything else to the bit.
package kernel
