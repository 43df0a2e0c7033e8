// Package align turns streams on their own clocks into rows on one timeline.
//
// # Contract
//
//	A1   A plan depends on timestamps alone, never on values: it is made once and run for every stream that shares the clock.
//	A2   Row i of the result is a function of t_i and of at most two samples (mean, sum: of the window). No row looks at its neighbours in the result.
//	A3   Valid(i) says whether t_i lies inside the data and no gap; it does not depend on the edge policy. The policy chooses the value only.
//	A4   Equal timestamps: the last sample is the sample at that time. Coming from the left, interpolation runs to the first of them.
//	A5   Weights are (t-s[k])/(s[k+1]-s[k]) with both differences in int64: no epsilon, and the denominator is > 0 by construction.
//	A6   Timestamps that decrease, and timestamps or targets beyond ±2^62 ns, are errors that name the stream and the index.
//	A7   A gap is longer than max_gap: linear, slerp, angle and mean measure the distance between the neighbours, previous, next and nearest that to the sample taken. An exact hit lies in no gap.
//	A8   Extrapolation takes the line through the samples at the two nearest distinct timestamps (A4 says which samples); with fewer it holds. In a gap there are samples on both sides, and the mode's own value is given.
//	A9   Mean takes the samples of [t-h0, t+h1), on exact hits too. An empty window is a gap whose value is that of nearest.
//	A10  Grids are integers: t_k = t0 + round(k·1e9·den/num), halves up, at any length.
//	A11  Row windows follow lerobot 0.6.1: n = round half even(δ·fps), refused where |δ·fps - n|/fps > tolerance; a row outside the episode is the edge row, and padded.
//	A12  Text, booleans, categories and frames are never computed: nearest, previous and next only.
//	A13  Episode takes timestamps that are k/rate through float32 (LeRobot's timestamp column) for k/rate; all other timestamps stay as recorded.
//	A14  A target that reads a row without a value (robocache.Capabilities.Valid) is zero and not valid, whatever the edge policy; under error it is an error.
//	A15  Of a dataset with several clocks texts, and streams of a single sample, bound no extent, unless there is nothing else or one is named.
//	A16  View is Episode for every row of every episode, made when it is asked for: same timeline, values, chosen rows and masks; "task" takes no part in its extent.
//	A17  A latched stream (robocache.Feature.Latched) without a mode of its own is held: before its first sample the first, then the last one. Every
//	     target is valid, and it bounds no extent.
//	A18  The time of a sample is its timestamp with drift, offset and latency taken off: at + (timestamp-at)/(1+ppm/1e6) + offset - latency, in nanoseconds, the
//	     middle term rounded once; at is the stream's first timestamp of the episode unless given. All that is said of timestamps above holds for these times.
//	A19  Channels that are rotations (robocache.Rotation: rotation vectors, Euler angles) are turned under slerp, which is then the default mode, and
//	     go on in their own form and branch (kernel K21); the row's other channels are linear.
//	A20  Sum (robocache.Feature.RelativeChannels, Config.Relative): row i covers [t_i, t_i+1/hz), of times given up to the next one, and sample k covers
//	     [s_k, s_k+1), the last as long as the step before it. A relative channel is the sum of what its samples do in the row's time, each in
//	     proportion (kernel K24); where no sample covers any of it, 0, whatever the edge policy but mask and error. The row's other channels are linear. Over
//	     a grid the sums add up to those of the samples, but for what the last sample does after the last row. Of A2 and A3: a row reads all
//	     samples in its time, and is not valid if it holds a part of one that is longer than max_gap.
//
// Cost: O(S + T) for ascending targets, O(T log S) otherwise; no allocation after NewPlan.
package align
