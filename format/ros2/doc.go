// Package ros2 decodes and encodes ROS 2 messages. It decodes CDR with the schema, has fast
// decoders for common robot types, and decodes any other type leaf by leaf. It does not read files:
// recordings pass payloads to it (format/internal/bag), and writers take payloads from it.
//
// # Contract
//
//	ros2.R1   A decoded value equals the value in the message, bit for bit. The first four bytes
//	          of the message determine byte order and alignment.
//	ros2.R2   A count or length in a message or schema is checked against the remaining bytes
//	          before memory is allocated for it.
//	ros2.R3   A message that ends early or has wrong counts is ErrMalformed with the path of the
//	          field. Up to 3 trailing bytes are accepted.
//	ros2.R4   Recursive schemas and types nested deeper than 64 are rejected. Unsupported
//	          constructs (wstring, parameter lists, unions) are ErrUnsupported with their name.
//	ros2.R5   A fast decoder is used only if the schema in the file has exactly the fields that
//	          it was written for. Its results equal those of the schema-driven decoder.
//	ros2.R6   A row is invalid if the message does not contain its value: a joint that is not
//	          named, an array that is too short, an Imu part that is marked as absent. Its bytes
//	          are zeros.
//	ros2.R7   After Scan, a Topic is safe for concurrent reading. Reading does not change it.
//	ros2.R8   If the fields have a fixed size, Columns makes no allocation that grows with the
//	          number of messages.
//	ros2.R9   The Encode functions write the same messages as ROS 2: plain little-endian CDR.
//	          Decoding them returns the original values.
//	ros2.R10  A schema does not fit if the first messages end early or have more than 3 further
//	          bytes. A finding reports this, and the common type of that name is used instead if
//	          it fits.
//	ros2.R11  Video packets are returned unchanged. They are foxglove's CompressedVideo, or
//	          CompressedImage whose format names a codec and whose data begins with a start code.
//	          If the first messages show that the images are not in display order, the topic is
//	          ErrUnsupported.
//	ros2.R12  RestoreTopic returns a topic with the fields of the topic whose Layout it gets. It
//	          decodes every message that fits to the same values. Other joints, another encoding,
//	          size or length are errors that name the expected and the found value.
package ros2
