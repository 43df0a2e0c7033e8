// Package inspect says what is in a dataset, for people and for machines: a summary of the whole, one episode's
// streams with their timestamps, and a contact sheet to look at.
//
// # Contract
//
//	I1  The JSON keys of Report and EpisodeReport are stable: other people's scripts read them.
//	I2  A summary reads metadata, file sizes and one sample table a video stream; it decodes nothing.
//	I3  What could not be read is said in Findings, and does not hide the rest.
package inspect
