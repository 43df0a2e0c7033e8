// Package nvdec decodes video on the engines of an NVIDIA GPU. It is a video.Backend over the
// driver's library libnvcuvid.
//
// # Contract
//
//	nvdec.N1  The library comes with the driver and is opened at run time, by this package alone.
//	          Open and Supports return a typed error with the reason if the library, the device
//	          or an engine for the codec is missing.
//	nvdec.N2  Only formats whose frames are known to equal libavcodec's are decoded: H.264, HEVC
//	          and VP9 with 8 bits, 4:2:0, progressive, of a size that the driver supports.
//	          All other formats are ErrUnsupported with the reason.
//	nvdec.N3  The frame of a packet is the surface that the driver decodes the packet into.
//	          Timestamps and display order are ignored, so only the index handles B-frames, open
//	          GOPs and edit lists. Frames are delivered in the order of their packets. Several
//	          frames share one wait for the engine. A surface that is reused earlier is mapped
//	          before that.
//	nvdec.N4  Planes are cropped by this package and never scaled by the engine. They are
//	          bit-identical to libavcodec's.
//	nvdec.N5  A frame that the engine decoded with an error is an error, even if the engine
//	          concealed the damage.
//	nvdec.N6  If a driver call fails, the method that made it returns the error. Close frees
//	          everything, whatever failed. A working decoder is kept, within limits, for the next
//	          stream with the same sample entry. A wait for the engine does not keep a core busy.
//	nvdec.N7  Frames that stay on the device are converted to RGB there, with the host's integers
//	          (video.Formula), bit for bit. If the host has no formula, the frame is copied to the
//	          host. This work uses one stream of the backend: nothing waits for a single frame, and
//	          operations that read a mapped frame precede those that overwrite it. Operations on
//	          frames are queued, and become one launch when there are enough of them, or when
//	          something needs their results or surfaces.
//
// # Why the driver's parser
//
// The engines need parsed slice headers and reference lists. The parser in libnvcuvid produces
// them. Own parsers for three codecs would be thousands of lines that must not contain an error.
// The parser receives one packet at a time, marked as a whole frame, so it requests the decoding of
// a packet during the call that passes this packet. That identifies the frame of each packet
// (nvdec.N3). The parser's display callbacks are ignored, except for VP9 packets that only display
// an earlier frame.
package nvdec
