// Package view serves a web page on which people look at datasets: episodes, frames, plots on one
// time axis, findings of the doctor, what an alignment would make, point clouds, two episodes or
// datasets side by side.
//
// # Contract
//
//	W1  Nothing is changed but the file of flags, which is written whole or not at all, and only where it was named.
//	W2  Without the token an answer holds no byte of a dataset: 401. A Host that is not a loopback name or allowed is 421, a request from another origin 403;
//	    both are looked at first, for every path.
//	W3  A URL holds numbers and keys that the dataset declares. What is not declared is 404; no name of a file is taken from a request.
//	W4  Frame n of a stream is the frame that Dataset.Frames names for row n, decoded by package video: never one found by time.
//	W5  Times are nanoseconds from the episode's start, the first timestamp of any stream. Every stream keeps its own rows: nothing is resampled, but
//	    in answers that a rate is asked for (hz), which are rows of align.View.
//	W6  A series is one of inspect.SeriesOf: no value that is higher or lower than its neighbours is lost, and a gap is NaN.
//	W7  Work ends with its request. Frames, timestamps, points and what a request reads are bounded in bytes (budgets.go).
//	W8  The page loads nothing from elsewhere: Content-Security-Policy forbids it. What a dataset says is put into it as text.
package view
