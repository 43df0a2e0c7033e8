// Package diagnose is the doctor of datasets of any format: what the format itself proves, and what
// follows from timestamps and values alone.
//
// # Contract
//
//	D1  Nothing is changed, and nothing is corrected: findings say what was measured, and of clocks the very align= (offset, drift) that takes it.
//	D2  Timestamps: repeated ones, steps beyond three median periods (gaps), late starts and early ends beside the other streams, jitter; a stream
//	    whose timestamps go back is an error that names the index.
//	D3  Clocks of one stream (header, publish, log): constant offset as the median of differences, drift as a linear fit in parts per million, steps.
//	D4  Streams on different clocks that share motion: offset by cross-correlation of their motion (the size of the change of their values, or of the values
//	    themselves), drift by a linear fit of the offsets of pieces; both again with what was found taken off. Two minutes are looked at; of a longer
//	    recording whose begin shows no clear peak, one in its middle, then one at its end. A pair without a clear peak (correlation below 0.8, or a second one nearly as high) gives no finding. A clock that was
//	    found wrong beside one stream is not told again beside others.
//	D5  Values: NaN and infinite ones are counted by stream, with the episode index, row and element of the first; images whose size cannot be read are errors; with Decode each is decoded.
//	D6  An episode that cannot be read is a finding, and the rest is looked at. Memory is bounded: values are read in blocks.
package diagnose
