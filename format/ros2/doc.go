// Package ros2 decodes and encodes the messages of ROS 2: CDR by the schema's text, fast paths for
// the types that robots record, and any other type leaf by leaf. It knows no file: recordings give
// it payloads (format/internal/bag), writers take payloads from it.
//
// # Contract
//
//	R1  A value is what the message holds, to the bit; byte order and alignment follow the message's own first four bytes.
//	R2  No count or length of a message or of a schema takes memory before it was checked against the bytes that are left.
//	R3  A message that ends early, or whose counts lie, is ErrMalformed with the field's path; up to 3 trailing bytes are accepted.
//	R4  Recursive schemas and types nested deeper than 64 are refused; what is not decoded (wstring, parameter lists, unions) is
//	    ErrUnsupported by name.
//	R5  A fast path is taken only where the schema in the file has the very fields that it was written for; it gives what the
//	    schema-driven decoder gives.
//	R6  A row whose value a message does not hold is not valid: a joint that is not named, an array that is too short, an Imu part
//	    marked as not given. Its bytes are zeros.
//	R7  After Scan, a Topic is read by many goroutines; reading changes nothing.
//	R8  Columns allocates nothing that grows with the number of messages, where the fields are fixed-size.
//	R9  What Encode… writes is what ROS 2 writes: plain little-endian CDR; the decoder gives back the values.
//	R10 A schema that does not fit the first messages (they end early, or more than 3 bytes follow) is a finding, and gives way to the
//	    common type of its name where that fits.
//	R11 Packets of video (foxglove's CompressedVideo, CompressedImage whose format names a codec and whose data begins with a start code) are given
//	    as they are; a topic whose first messages show that its images come in another order than they are shown is ErrUnsupported.
package ros2
