// Package formattest is the suite that every reader of a format passes.
//
// # Contract
//
//	F1  Info is whole: keys are unique, kinds, dtypes and shapes fit each other, Frames is the sum of all lengths, two openings say the same.
//	F2  Times("") has Len timestamps; streams of one Clock have the same timestamps, in order; those of the episode's own clock have Times("").
//	F3  Gather, GatherRagged, Text, Frames and Valid give for rows in any order, with repetitions, what they give row by row.
//	F4  What they give is the caller's: to write to it changes nothing.
//	F5  A key, an episode or a row that is not there, and room of the wrong size, are errors with a class; nothing panics.
//	F6  Many goroutines read what one reads.
//	F7  A context that has ended ends the call; Close ends all goroutines, may be called twice, and reading after it is an error or right.
//	F8  Opened by its URI alone the dataset is of its own format, and no other format claims it.
//	F9  Capabilities returns the same struct at each call, and it has every capability that the dataset has a method of.
package formattest
