// Package inspect says what is in a dataset, for people and for machines: a summary of the whole,
// one episode's streams with their timestamps, points to draw of them, and figures to look at.
//
// # Contract
//
//	I1  The JSON keys of Report and EpisodeReport are stable: other people's scripts read them.
//	I2  A summary reads metadata, file sizes and one sample table a video stream; it decodes nothing.
//	I3  What could not be read is said in Findings, and does not hide the rest.
//	I4  A figure shows each stream over the whole episode, at its own timestamps. What it leaves out it says.
package inspect
