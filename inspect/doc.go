// Package inspect describes the contents of a dataset for people and for programs. It makes a
// summary of the dataset, a report of one episode with the timestamps of its streams, points of
// curves, and figures.
//
// # Contract
//
//	inspect.I1  The JSON keys of Report and EpisodeReport are stable, because other scripts read
//	            them.
//	inspect.I2  A summary reads metadata, file sizes and one sample table per video stream. It
//	            decodes nothing.
//	inspect.I3  A part that cannot be read becomes a finding. The other parts are still reported.
//	inspect.I4  A figure shows each stream over the whole episode, at its own timestamps. It lists
//	            what it leaves out.
package inspect
