// Package aloha reads ALOHA's HDF5 files: an episode each, with action and observations.
//
// # Contract
//
//	A1  An episode is a file; files follow the numbers in their names. Its length is that of action.
//	A2  Streams are action, observation.<path> of what is below observations, and other data sets as long as action by their path.
//	A3  Cameras are pixels, or rows of JPEG or PNG bytes that are filled up with zeros or of varying length: the image's own end marker
//	    counts, never compress_len. A row of zeros has no image.
//	A4  The rate is OpenOptions.HZ, else an attribute fps, hz, frequency or control_freq, else 50 Hz, with a finding that says so.
//	A5  Channels are as they decode; option channel_order (or a mapping) says that some writer swapped red and blue.
package aloha
