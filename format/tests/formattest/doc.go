// Package formattest is the test suite for the readers of all formats.
//
// # Contract
//
//	formattest.F1  Info is consistent. Keys are unique, kinds, dtypes and shapes fit each other, and
//	               Frames is the sum of all lengths. Opening twice gives the same Info.
//	formattest.F2  Times("") returns Len timestamps. Streams with the same Clock have the same
//	               timestamps, in order. Streams on the episode's clock have those of Times("").
//	formattest.F3  Gather, GatherRagged, Text, Frames and Valid return the same for rows in any order,
//	               with repetitions, as row by row.
//	formattest.F4  The caller owns the results. Writing to them changes nothing else.
//	formattest.F5  A key, an episode or a row that does not exist, and a result of the wrong size, are
//	               errors with a class. Nothing panics.
//	formattest.F6  Concurrent goroutines read the same as one goroutine.
//	formattest.F7  A canceled context ends the call. Close ends all goroutines and may be called
//	               twice. A read after Close returns an error or a correct result.
//	formattest.F8  The URI alone opens the dataset in its own format, and no other format detects it.
//	formattest.F9  Capabilities returns the same struct at each call. It has every capability for
//	               which the dataset has a method.
package formattest
