// Package message decodes the ROS 2 messages of a robot into rows of streams, as the reader of a
// recording decodes them.
//
// # Contract
//
//	message.M1  A row has the time and the bits that the dataset returns for the same message in
//	            the recording from which its MessageSource is: Times, Gather, GatherRagged, Text
//	            and Frames. Only the clock log differs: its time is the arrival.
//	message.M2  A message that does not fit the recording is a typed error that names the topic,
//	            the stream, the expected and the found value. Other joints, another encoding, size
//	            or length do not fit. Neither does an absent value of a stream whose rows all have
//	            one. The streams of the message that do fit are emitted. A latched stream holds its
//	            last value.
//	message.M3  Memory for a message is proportional to its size. A message has at most 4096 rows.
//	message.M4  After the first messages, decoding a row of numbers allocates nothing.
//	message.M5  A Decoder is safe for concurrent use. Messages of one topic are decoded one at a
//	            time.
//
// A payload does not name its type. CheckChannel compares the type that a publisher announces;
// Decode finds another type only by its size.
//
// A video packet is not decoded: its row has the packet. Whether its frame can be decoded depends
// on the packets before it (video.Stream).
package message
