// Package write writes LeRobot v3.0 datasets episode after episode. A whole dataset of any format is written by package export.
//
// # Contract of Writer
//
//	W1  Every file appears whole, under its name, or not at all; meta/info.json is the last: a tree without it is no dataset.
//	W2  The same episodes and configuration give the same bytes.
//	W3  One row group an episode in data files; file numbers stay below 1000; no file is empty.
//	W4  Frame k of an episode has pts from_timestamp + k/fps exactly, on one unbroken grid a file; what AddEpisode was given as
//	    timestamps never enters it.
//	W5  An episode that is refused, or whose pixels do not come, leaves the writer as it was. After any other error it only answers Abort,
//	    which removes every file that it made.
package write
