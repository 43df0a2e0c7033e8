// Package stats computes the statistics of a dataset exactly: count, min, max, mean, standard
// deviation and quantiles.
//
// # Contract
//
//	stats.S1  Moments are float64 throughout, computed in blocks that Chan's method merges. A column
//	          with mean 1000 and deviation 0.0093 keeps its deviation; a float32 E[x²]−E[x]² gives
//	          0.354.
//	stats.S2  Quantiles are exact for any number of rows: the result of
//	          numpy.quantile(values as float64, q, method="linear"). Above the byte budget, the
//	          column is not held or sketched. It is read again, once per 11 bits of its key.
//	stats.S3  A feature with more than one axis is reduced over all axes except its last. Count is
//	          the number of rows. A stream on its own clock counts its own rows. A row without a
//	          value is left out. For a ragged stream or a point cloud, entries are counted instead
//	          of rows.
//	stats.S4  Images have one entry per channel, scaled to [0,1]. Depth stays in its stored unit.
//	          By default the frames are those of SampleFrames: clamp(n^0.75, 100, 10000) of each
//	          range of rows, evenly spaced, with both ends. If the longer side of a frame has at
//	          least 300 pixels, every k-th pixel of every k-th line is counted, with
//	          k = longer side / 150. This is lerobot's rule. If all frames are chosen, every pixel
//	          counts.
//	stats.S5  Values that are not finite are left out. A finding reports their number.
//	stats.S6  Moments and Pixels can be merged. For any division of the rows, counts, extremes and
//	          quantiles are the same, and mean and deviation are the same up to rounding. Quantiles
//	          of a set are never computed from those of its episodes. Parts (Sorter) keep their
//	          values in ascending order, and Whole reads the values near a quantile.
//	stats.S7  Memory is bounded by Options.Budget plus a constant, for any number of rows.
//	stats.S8  The results have the same bits in every build: no product is fused into a sum.
//	stats.S9  Hold reads numbers once. With a folder, it reads an episode again if its index, its
//	          length, or the name, size or version of its files changed, or if its bytes in the
//	          folder are not those that were written. Results do not depend on what was held.
//	stats.S10 AsLeRobot gives the statistics that lerobot computes from those of episodes. Windows
//	          gives those of openpi and GR00T.
//
// Intuitively, numbers are counted as they are read, and exact quantiles cost a few more passes
// instead of memory.
package stats
