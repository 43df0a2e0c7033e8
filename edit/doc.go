// Package edit makes new datasets from existing ones. It deletes, trims, splits and merges
// episodes. It renames, removes and adds features. It changes tasks and the encoding of video.
//
// Each verb changes a Plan. A plan can be read as a Dataset, and the writer of the result's format
// writes that dataset.
//
// # Contract
//
//	edit.E1  The source is never written to. Errors are returned before the first byte is written
//	         if they can be found by then: unknown episodes and keys, empty results and splits,
//	         different rates, a destination that is not empty.
//	edit.E2  Rows and images keep their exact bits. Video is copied, and Request.Cut decides what
//	         happens to a cut inside a GOP. The report counts copied, hidden and encoded segments,
//	         and gives the PSNR of encoded frames. Recordings that do not change keep their bytes.
//	edit.E3  The same source and verbs give the same bytes. The result depends neither on the time
//	         nor on the location of the source.
//	edit.E4  A verb names an episode by its index in the source, even if earlier verbs deleted or
//	         reordered episodes. After a merge it names an episode by its position in the merged
//	         dataset.
//	edit.E5  If an edit in place is killed, the dataset's name holds either the old or the new
//	         dataset, never a mixture. Undo restores the old dataset.
//	edit.E6  Statistics are computed from the rows that are written.
//
// Intuitively, an edit is lazy: verbs only change the plan, which lists source rows and keys. Data
// is read and written once, at the end.
package edit
