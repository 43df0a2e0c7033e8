// Package calvin reads CALVIN datasets: one npz file a frame, runs of frames, language annotations.
//
// # Contract
//
//	C1  Open reads the runs, the language annotations, and the headers of the first and the last frame of each run. Episodes are the
//	    runs of ep_start_end_ids.npy in its order, both ends inclusive; those of training/ come before those of validation/. With the
//	    option language=episodes episodes are the annotated windows, in the annotations' order.
//	C2  The streams are the union of the arrays of all runs, each with its most common type and shape. actions is "action", rel_actions
//	    keeps its name, the others are "observation." and their name. Arrays of bytes with three channels are images, float32 arrays of
//	    two dimensions are depth in metres. The tactile arrays hold two sensors in their channels and make two streams, ".0" and ".1".
//	C3  An array that all frames of a run lack is a finding "missing-stream" of its episodes (robocache.Capabilities.Lacks). An array that one frame
//	    lacks, or has in another type or shape, is an error of its streams in that frame: it names file and member. The other streams of
//	    the frame are read.
//	C4  A row's text is that of the annotation that covers it; where windows overlap, of the one that begins last. Rows without one have "".
//	C5  Pickles are read by npy's whitelist. What else holds Python objects is skipped with a Finding.
//	C6  Rows are 1/30 s apart, or as OpenOptions.HZ says. No clock is recorded.
//	    Info.UnusedClocks lists the time arrays of the frames.
//	C7  No panic leaves the package; a member's declared size is checked before memory is taken; what is kept stays below the budget.
//	C8  LeaseFrames gives what Frames gives, in memory that is used again; frames' files stay open for the streams of a batch, a bounded number.
package calvin
