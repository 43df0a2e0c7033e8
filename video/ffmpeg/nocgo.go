//go:build !cgo

package ffmpeg

// Without cgo there is no libavcodec: nothing is registered, and video.ActiveBackend says what
// helps.
