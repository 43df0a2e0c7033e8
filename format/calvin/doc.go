// Package calvin reads CALVIN datasets: one npz file per frame, runs of frames, and language
// annotations.
//
// # Contract
//
//	calvin.C1  Open reads the runs, the language annotations, and the headers of the first and the
//	           last frame of each run. Episodes are the runs of ep_start_end_ids.npy in file
//	           order, with both ends inclusive. Runs of training/ precede those of validation/.
//	           With the option language=episodes, episodes are the annotated windows in the order
//	           of the annotations.
//	calvin.C2  The streams are the union of the arrays of all runs, each with its most common type
//	           and shape. actions becomes "action", rel_actions keeps its name, and others become
//	           "observation." with their name. Arrays of bytes with three channels are images.
//	           float32 arrays of two dimensions are depth in meters. The tactile arrays contain
//	           two sensors in their channels and become two streams, ".0" and ".1".
//	calvin.C3  An array that all frames of a run lack is a finding "missing-stream" of its
//	           episodes (robocache.Capabilities.Lacks). An array that one frame lacks, or has in
//	           another type or shape, is an error of its streams in that frame. The error names
//	           the file and the member. The other streams of the frame can be read.
//	calvin.C4  The text of a row is that of the annotation that covers it. If windows overlap, the
//	           one that begins last is used. Rows without an annotation have "".
//	calvin.C5  Pickles are read with npy's whitelist. Other files with Python objects are skipped
//	           with a Finding.
//	calvin.C6  Rows are 1/30 s apart, or as OpenOptions.HZ says, because no clock is recorded.
//	           Info.UnusedClocks lists the time arrays of the frames.
//	calvin.C7  No panic leaves the package. The declared size of a member is checked before memory
//	           is allocated. Caches stay below the budget.
//	calvin.C8  LeaseFrames returns the same as Frames, in memory that is reused. A limited number
//	           of frame files stays open for the streams of a batch.
package calvin
