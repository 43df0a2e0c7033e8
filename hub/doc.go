// Package hub gets datasets from the Hugging Face Hub and brings them there.
//
// # Contract
//
//	U1  Pull reads one commit. A file appears under its name whole and with the Hub's checksum, or not at all; what is there with that
//	    checksum is not read again, and a part that was read is gone on with.
//	U2  With episodes, files that hold others alone are left out; metadata and what is no data are always there.
//	U3  Push makes the branch what the folder is, in one commit: files that differ go up, files that are gone go. It compares sizes and
//	    checksums afterwards, and moves the version's tag last, so that who reads the tag sees the old dataset until the new one is whole.
//	U4  The card keeps the text and the keys of the README that is there. No licence is made up.
//	U5  Nothing private becomes public: a dataset that was asked to be private, and is not, is an error before a byte goes out.
//	U6  Tokens are huggingface_hub's to find; no message holds one.
package hub
