// Package calvin reads CALVIN datasets: one npz file a frame, runs of frames, language annotations.
//
// # Contract
//
//	C1  Open reads the runs, the language annotations and the headers of one frame; episodes are the runs of ep_start_end_ids.npy in its
//	    order, both ends inclusive, those of training/ before those of validation/. With the option language=episodes they are the
//	    annotated windows, in the annotations' order.
//	C2  Each member of a frame is a stream under its own name: actions is "action", rel_actions is itself, the others stand behind
//	    "observation.". Arrays of bytes with three channels are images, float32 arrays of two dimensions are depth in metres; the tactile
//	    arrays hold two sensors side by side in their channels and are given as two streams, ".0" and ".1".
//	C3  Every frame must have the types and shapes of the first one read; what differs, or is missing, is an error that names file and member.
//	C4  A row's text is that of the annotation that covers it; where windows overlap, of the one that begins last. Rows without one have "".
//	C5  Pickles are read by npy's whitelist. What else holds Python objects is skipped with a Finding.
//	C6  Rows are 1/30 s apart, or as OpenOptions.HZ says. No clock is recorded.
//	C7  No panic leaves the package; a member's declared size is checked before memory is taken; what is kept stays below the budget.
//	C8  LeaseFrames gives what Frames gives, in memory that is used again; frames' files stay open for the streams of a batch, a bounded number.
package calvin
