// Package e2e tests the packages together, from bytes in a store to batches, on real data and on
// damaged copies of it. It contains only tests and their helpers; no package imports it.
//
// # What is tested
//
//	e2e.C1  A dataset behind http gives the same samples, order, values and pixels as on disk. It
//	        reads what it needs, not whole files.
//	e2e.C2  Any operation of a store may fail, and a server may misbehave. The result is the right
//	        data, or a typed error in time.
//	e2e.C3  Files may be damaged or hostile (LeRobot, parquet, mp4 and JSON). The result is a typed
//	        error that names the place, or the undamaged data. Time and memory are bounded. There is
//	        no panic and no wrong frame.
//	e2e.C4  Random frames and windows equal the frames that another program decodes in sequence, in
//	        any order and with any number of threads.
//	e2e.C5  A streamed epoch stays inside its memory budget plus a stated constant. Close leaves no
//	        goroutine and no open file, whenever it is called. A canceled call returns within a
//	        second.
//	e2e.C6  If the disk is full, convert, stats and synth fail with a resource limit error and leave
//	        no partial file.
//	e2e.C7  A dataset of any format converts to LeRobot with all its rows, texts and frames. One
//	        synthetic dataset, written in every format with a writer, gives the loader the same
//	        samples from each.
package e2e
