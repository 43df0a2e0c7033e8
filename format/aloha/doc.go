// Package aloha reads ALOHA's HDF5 files. Each file is one episode with action and observations.
//
// # Contract
//
//	aloha.A1  An episode is a file. Files are sorted by the numbers in their names. The length of
//	          an episode is the number of rows of action.
//	aloha.A2  Streams are action, observation.<path> for data sets below observations, and other
//	          data sets that are as long as action, named by their path.
//	aloha.A3  Cameras are pixels, or rows of JPEG or PNG bytes, either padded with zeros or of
//	          variable length. The image's own end marker determines its length, never
//	          compress_len. A row of zeros has no image.
//	aloha.A4  The rate is OpenOptions.HZ, otherwise an attribute fps, hz, frequency or
//	          control_freq, otherwise 50 Hz with a finding that reports the assumption.
//	aloha.A5  Channels stay in the decoded order. The option channel_order (or a mapping) states
//	          that the writer swapped red and blue.
package aloha
