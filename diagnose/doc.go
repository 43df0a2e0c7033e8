// Package diagnose is the doctor for datasets of any format. It reports the findings of the
// format's own checks, and adds findings from timestamps and values.
//
// # Contract
//
//	diagnose.D1  The dataset is not changed. Findings report measurements. For clocks, the hint is
//	             the exact align= (offset, drift) that corrects the fault.
//	diagnose.D2  Timestamps: findings report repeated timestamps, gaps (steps longer than three
//	             median periods), jitter, and streams that start late or end early compared with
//	             the others. A stream whose timestamps go back is an error that names the index.
//	diagnose.D3  Clocks of one stream (header, publish, log): findings report a constant offset
//	             (the median of the differences), drift (a linear fit, in parts per million) and
//	             steps.
//	diagnose.D4  Streams on different clocks with shared motion: findings report the offset (by
//	             cross-correlation of values or of their rate of change) and the drift (a linear
//	             fit of the offsets of pieces). Each is measured again after it is corrected. The
//	             first two minutes are examined. In a longer recording without a clear peak there,
//	             one minute in the middle and one at the end are examined too. A pair has no clear
//	             peak if its correlation is below 0.8, or if another peak is nearly as high; it
//	             gives no finding. A clock with a finding is not reported again for other streams.
//	diagnose.D5  Values: NaN and infinite values are counted by stream, with the episode index,
//	             row and element of the first. Images whose size cannot be read are errors. With
//	             Decode, each image is decoded.
//	diagnose.D6  An episode that cannot be read is a finding, and the other episodes are still
//	             examined. Memory is bounded, because values are read in blocks.
package diagnose
