// Package mapping reads the files that say what a format leaves open (streams, clocks, units,
// concatenations), and puts them over a dataset.
//
// # Contract
//
//	M1  A mapping file is YAML (JSON is YAML) of the keys of robocache.Mapping; an unknown or repeated key, or a value of another type, is an
//	    error that says where.
//	M2  A mapped stream has the bits of its sources: concatenation and slices move bytes; scale multiplies in float64 and rounds once to the stored type.
//	M3  Sources that are joined lie on one clock and have one dtype; images, texts and ragged rows are renamed, never joined.
//	M4  timestamps:<key> takes the timestamps from the values of a stream, rounded to ns; drift is taken off, and offset_ns is added after. Such a stream has a clock of its own.
//	M5  A key that the dataset does not have is an error at opening that names the nearest one.
//	M6  Suggest writes a mapping that changes nothing: opened with it, a dataset has the same streams. To UMI's (robotN_eef_pos, …, no action) it adds the action.
//
// The cost of a mapped Gather is one copy where streams are joined, sliced or scaled, and none
// elsewhere.
package mapping
