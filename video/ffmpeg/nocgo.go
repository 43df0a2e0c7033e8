//go:build !cgo

package ffmpeg

// Without cgo there is no libavcodec: nothing is registered, and video.ActiveBackend returns an
// error with a hint.
