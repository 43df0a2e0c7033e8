// Package mapping reads mapping files and applies them to a dataset. A mapping file states what a
// format leaves open: streams, clocks, units and concatenations.
//
// # Contract
//
//	mapping.M1  A mapping file is YAML (or JSON, which is YAML) with the keys of
//	            robocache.Mapping. An unknown key, a repeated key, or a value of another type is
//	            an error with its location.
//	mapping.M2  A mapped stream has the exact bits of its sources. Concatenation and slices copy
//	            bytes. A scale multiplies in float64 and rounds once to the stored type.
//	mapping.M3  Streams that are joined must have the same clock and the same dtype. Images, texts
//	            and ragged rows can be renamed, but not joined.
//	mapping.M4  timestamps:<key> takes the timestamps from the values of a stream, rounded to ns.
//	            Drift is removed first, then offset_ns is added. Such a stream has its own clock.
//	mapping.M5  A key that the dataset does not have is an error at opening. The error names the
//	            nearest key.
//	mapping.M6  Suggest writes a mapping that changes nothing: a dataset opened with it has the
//	            same streams. For UMI datasets (robotN_eef_pos, …, no action) it adds the action.
//
// A mapped Gather costs one copy if streams are joined, sliced or scaled. Otherwise it costs
// nothing.
package mapping
