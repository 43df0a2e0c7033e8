// Package stats computes the statistics of a dataset exactly: count, min, max, mean, standard
// deviation and quantiles.
//
// # Contract
//
//	S1  Moments are float64 throughout, by blocks and Chan's merge: a column of mean 1000 and deviation 0.0093 keeps its
//	    deviation (the float32 E[x²]−E[x]² of the field gives 0.354).
//	S2  Quantiles are exact: what numpy.quantile(values as float64, q, method="linear") gives, whatever the number of rows.
//	    Above the byte budget the column is read again, once per 11 bits of its key, instead of being held or sketched.
//	S3  A feature of more than one axis is reduced over all but its last; Count is the number of rows.
//	    A stream on a clock of its own counts its own rows; a row without a value takes no part; of a ragged stream, a point cloud,
//	    entries are counted in place of rows.
//	S4  Images: one entry a channel, scaled to [0,1]; depth in its stored unit. The frames used are those of SampleFrames
//	    (clamp(n^0.75, 100, 10000) a row range, evenly spaced, both ends included), and of frames whose longer side has 300 pixels or more
//	    every k-th pixel of every k-th line, k = longer side / 150: lerobot's rule. Or all frames, and then every pixel counts.
//	S5  Values that are not finite take no part; how many there were is reported as a finding.
//	S6  Moments and Pixels merge: any split of the rows gives the same counts, extremes and quantiles, and the same mean and
//	    deviation to rounding. Quantiles of a set are never made out of those of its episodes: parts (Sorter) keep their values in ascending
//	    order, and Whole reads of them what lies near a quantile.
//	S7  Memory is bounded by Options.Budget and a fixed part, not by the number of rows.
//	S8  The numbers are the same bits in every build: no sum is fused with a product.
package stats
