// Package edit makes datasets of datasets: episodes deleted, cut, split, merged; features renamed,
// removed, added; tasks and video changed. Verbs make a plan, a plan is a Dataset, and the writer
// of its format writes that.
//
// # Contract
//
//	E1  All that can be refused is refused before the first byte is written: unknown episodes and keys, empty results and splits, other rates, a
//	    destination that is taken. The source is never written to.
//	E2  Rows keep their bits, images their bytes. Video is copied; a cut inside a GOP follows Request.Cut, and the report counts what was copied, hidden and encoded,
//	    and how near encoded frames come to the source. Recordings that stay as they are stay byte for byte.
//	E3  The same source and verbs give the same bytes: nothing depends on the time or on where the source lies.
//	E4  A verb names episodes by their index in the source, whatever the verbs before it deleted or reordered; after a merge, by their place in the merged whole.
//	E5  In place, a kill at any moment leaves the old dataset or the new one under its name, never a mixture; Undo gives the old one back.
//	E6  Statistics are counted from the rows that are written.
package edit
