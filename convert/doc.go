// Package convert writes any dataset in any format that has a writer. It does not know the formats.
// It prepares what all formats have in common, and calls the writer that the format registered
// (robocache.Format.Write).
//
// # Contract
//
//	convert.C5   The destination must be empty. After an error or the end of the context, no files
//	             and no folders remain.
//	convert.C6   Nothing is dropped silently. The report contains all findings of the source
//	             (robocache.Findings), from opening and from reading, for every format that is
//	             written.
//	convert.C7   A source is resampled to one grid (align.View) if its streams have their own
//	             clocks or if Options.Align is set. The rate is that of Align, else FPS, else the
//	             rate of the source. If the format keeps clocks (robocache.Format.Clocks), they
//	             stay as they are. A stream without max_gap gets one from its own rate
//	             (align.ViewOptions.Rhythm). Rows in gaps are masked, and a finding counts them.
//	convert.C10  Streams whose time ranges do not overlap are an ErrMisuse that names the streams
//	             and their timestamps.
//	convert.C12  Episodes and keys that the source does not have are an error. Files that could
//	             not be read when the source was opened are an error too, unless bad episodes are
//	             skipped.
//
// The other clauses (C1 to C4, C8, C9, C11, and the behaviour after a kill in C5) belong to
// LeRobot's writer in format/lerobot/write.
package convert
