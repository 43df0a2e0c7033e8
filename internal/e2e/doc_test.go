// Package e2e tests the rooms together, from bytes in a store to batches, on real data and on
// damaged copies of it. It holds tests and their helpers only; nothing imports it.
//
// # What is proved
//
//	E1  A dataset behind http gives the same samples, order, values and pixels as from disk, and reads what it needs, not whole files.
//	E2  Whatever operation of a store fails, and however a server misbehaves: the right data, or a typed error in time.
//	E3  Damaged and hostile files (specs of bad input, as far as they concern LeRobot, parquet, mp4 and JSON): a typed error that
//	    names the place, or the data that is whole; bounded time and memory; no panic, no wrong frame.
//	E4  Random frames and windows are the frames that another program decodes in sequence, at any order and number of threads.
//	E5  A streamed epoch stays inside its memory budget and a stated constant; Close leaves no goroutine and no file open, at any
//	    moment; a cancelled call returns within a second.
//	E7  Datasets of every format become LeRobot with every row, text and frame they had; one synthetic dataset, written in every format that
//	    is written, gives the loader the same samples from each.
//	E6  A disk that is full ends convert, stats and synth with a resource limit error, and leaves nothing half-written.
package e2e
