// Package align turns streams on their own clocks into rows on one timeline.
//
// # Contract
//
//	align.A1   A plan depends on timestamps only, never on values. It is computed once and shared by
//	           all streams of the same clock.
//	align.A2   Row i of the result depends on t_i and on at most two samples (mean, sum: on those of
//	           its window). Rows are independent of each other.
//	align.A3   Valid(i) reports whether t_i lies inside the data and outside every gap. It does not
//	           depend on the edge policy, which only chooses the value.
//	align.A4   If timestamps are equal, the last sample is the sample at that time. Interpolation
//	           from the left ends at the first of them.
//	align.A5   Weights are (t-s[k])/(s[k+1]-s[k]) with both differences in int64. There is no
//	           epsilon, and the denominator is > 0 by construction.
//	align.A6   Timestamps that decrease, and timestamps or targets beyond ±2^62 ns, are errors that
//	           name the stream and the index.
//	align.A7   A gap is longer than max_gap. linear, slerp, angle and mean measure the distance
//	           between the neighbors. previous, next and nearest measure the distance to the chosen
//	           sample. An exact hit is never in a gap.
//	align.A8   Extrapolation uses the line through the samples at the two nearest distinct
//	           timestamps (align.A4 states which samples). With fewer timestamps it repeats the
//	           edge sample. A gap has samples on both sides, so the mode's own value is used there.
//	align.A9   Mean uses the samples of [t-h0, t+h1), on exact hits too. An empty window is a gap
//	           whose value is that of nearest.
//	align.A10  Grids are integers of any length: t_k = t0 + round(k·1e9·den/num), halves up.
//	align.A11  Row windows follow lerobot 0.6.1: n = round half even(δ·fps). Offsets with
//	           |δ·fps - n|/fps > tolerance are rejected. A row outside the episode is the edge row
//	           and is marked as padding.
//	align.A12  Text, booleans, categories and frames are never computed. Only nearest, previous and
//	           next are allowed for them.
//	align.A13  Episode replaces timestamps that are k/rate rounded to float32 (LeRobot's timestamp
//	           column) by k/rate. All other timestamps stay as recorded.
//	align.A14  A target that reads a row without a value (robocache.Capabilities.Valid) is zero and
//	           invalid under every edge policy. Under the policy error it is an error.
//	align.A15  In a dataset with several clocks, texts and streams with a single sample do not bound
//	           the extent, unless there is nothing else or the extent names one of them.
//	align.A16  View is Episode for every row of every episode, computed when it is read. Timeline,
//	           values, chosen rows and masks are the same. "task" does not bound its extent.
//	align.A17  A latched stream (robocache.Feature.Latched) without a chosen mode holds its value:
//	           the first one before its first sample, then the last one. Every target is valid, and
//	           the stream does not bound the extent.
//	align.A18  The time of a sample is its timestamp corrected by drift, offset and latency:
//	           at + (timestamp-at)/(1+ppm/1e6) + offset - latency, in nanoseconds, with the middle
//	           term rounded once. By default, at is the stream's first timestamp in the episode.
//	           All clauses about timestamps apply to these times.
//	align.A19  Channels that are rotations (robocache.Rotation: rotation vectors, Euler angles) are
//	           rotated under slerp, which is then the default mode. They keep their form and branch
//	           (kernel.K21). Other channels of the row are linear.
//	align.A20  Sum (robocache.Feature.RelativeChannels, Config.Relative): row i covers
//	           [t_i, t_i+1/hz), or for given times the time up to the next one. Sample k covers
//	           [s_k, s_k+1), and the last one is as long as the step before it. A relative channel
//	           is the sum of the changes of its samples in the row's time, in proportion to the
//	           covered time (kernel.K24). If no sample covers any of it, the sum is 0 under every
//	           edge policy except mask and error. Other channels of the row are linear. Over a grid
//	           the sums add up to those of the samples, except for the part of the last sample
//	           after the last row. Unlike align.A2 and align.A3, a row reads all samples in its
//	           time. It is invalid if it covers only a part of a sample longer than max_gap.
//	align.A21  Under causal, the row of an observation at tick t is the row of a plan over the samples
//	           that had arrived at t, evaluated at t - delay. A sample arrives at its log time
//	           (Capabilities.Clocks) or, without one, with its timestamp, and arrival_delay later.
//	           previous and nearest hold the newest sample for every later target within max_gap,
//	           and within max_age of the tick. If nothing has arrived, the row is zero and invalid
//	           under every edge policy except error. stale="error" is the edge policy error.
//	           Labels (actions, rewards, Config.Targets) and "task" are aligned as without causal.
//	           In a loader, a step of delta_timestamps or delta_indices is the row of its own tick,
//	           and the first tick's row, marked as padding, before that. A step or span of windows
//	           uses what had arrived at the sample's tick.
//
// Intuitively, a plan is a sparse matrix with at most two entries per row. Package kernel applies
// it to the values of every stream on the clock.
//
// Cost: O(S + T) for ascending targets, O(T log S) otherwise. Only NewPlan allocates.
package align
