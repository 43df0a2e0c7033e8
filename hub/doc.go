// Package hub downloads datasets from the Hugging Face Hub and uploads them.
//
// # Contract
//
//	hub.U1  Pull reads one commit. A file gets its final name only when it is complete and has
//	        the Hub's checksum. A local file with that checksum is not downloaded again, and a
//	        partial download is continued.
//	hub.U2  With episodes, Pull omits the files that hold only other episodes. It always
//	        downloads metadata and all files that are not data.
//	hub.U3  Push makes the branch equal to the folder in one commit. It uploads files that differ
//	        and deletes files that the folder does not have. It then compares sizes and
//	        checksums, and moves the version's tag last. Readers of the tag therefore see the old
//	        dataset until the new one is complete.
//	hub.U4  The card keeps the text and the keys of the existing README. A license is never
//	        invented.
//	hub.U5  Private data is never published. If a private push is requested and the dataset is
//	        public, Push returns an error before it uploads anything.
//	hub.U6  huggingface_hub finds the token. No message contains it.
package hub
