// Package view serves a web page for looking at datasets. It shows a table of episodes with their
// metrics, frames, plots on one time axis, findings, the result of an alignment, point clouds, and
// two episodes or datasets side by side.
//
// # Contract
//
//	view.W1  The server changes nothing except the files of flags and of annotations. It writes
//	         these files atomically, and only if the caller named them.
//	view.W2  Without the token, an answer has status 401 and contains no byte of a dataset. A Host
//	         that is neither a loopback name nor allowed gets 421. A request from another origin
//	         gets 403. Both are checked first, for every path.
//	view.W3  A URL contains only numbers, keys that the dataset declares, names of metrics, and
//	         expressions of package query. Anything else is an error. No file name is taken from
//	         a request.
//	view.W4  Frame n of a stream is the frame that Dataset.Frames names for row n, decoded by
//	         package video. Frames are never looked up by time.
//	view.W5  Times are nanoseconds from the start of the episode, which is the first timestamp of
//	         any stream. Every stream keeps its own rows. Only answers with a requested rate (hz)
//	         are resampled: they contain the rows of align.View.
//	view.W6  A series is one of inspect.SeriesOf. It keeps every local minimum and maximum, and a
//	         gap is NaN.
//	view.W7  Work ends with its request. The bytes of frames, timestamps, points, and of what a
//	         request reads are bounded (budgets.go).
//	view.W8  The page loads nothing from other servers: Content-Security-Policy forbids it.
//	         Strings from a dataset are inserted as text, never as HTML.
//	view.W9  A metric is the value in the table of package quality. The table is that of the
//	         sidecar, or it is measured in memory: without a request only the numbers of a small
//	         local dataset.
package view
