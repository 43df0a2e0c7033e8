// Package nvdec decodes video on the engines of an NVIDIA GPU: a video.Backend over the driver's
// library libnvcuvid.
//
// # Contract
//
//	N1  The library comes with the driver and is opened at run time, here alone. Without it, a device, or an engine for the codec, Open and Supports say so
//	    by class and reason.
//	N2  Only what is known to come out as libavcodec gives it is taken: H.264, HEVC and VP9 of 8 bits, 4:2:0, progressive, within the sizes that the driver
//	    says. All else is ErrUnsupported with the reason.
//	N3  A packet's frame is the surface that the driver was told to decode it into. No timestamp and no display order is consulted, so that B-frames, open
//	    GOPs and edit lists are the index's matter alone. Frames come in the order of their packets, several at a time, so that the engine is waited for
//	    once; a surface that is wanted again before is mapped first.
//	N4  Planes are cropped from the coded size by us, never scaled by the engine. They are equal to libavcodec's to the bit.
//	N5  A frame that the engine decoded with an error, concealed or not, is an error, never pixels.
//	N6  A failure of the driver is an error of the call that met it; what was made is given back by Close, whatever failed. A sound decoder
//	    is kept instead, within bounds, for the next stream of its kind. A wait for the engine gives its core away.
//	N7  Frames that stay on the device become RGB there by the host's own integers (video.Formula), to the bit; where the host has none, the frame goes to the
//	    host. All that is done there is on one stream of the backend: nothing waits for one frame, and what reads a mapped frame is before what
//	    overwrites it. Operations on frames are queued until there are many, or until something needs their results or surfaces: then they are one launch.
//
// # Why the driver's parser
//
// The engines want slice headers parsed and reference lists made. The parser in libnvcuvid does
// that; own code for three codecs would be thousands of lines that must not be wrong. It is given
// one packet at a time, marked as a whole frame, so that it asks for the decoding of a packet while
// that packet is in hand: this is what names frames (N3). What it says about display is not used,
// but for VP9's packets that only show a frame which is there.
package nvdec
