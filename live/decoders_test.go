//go:build cgo

package live_test

import _ "github.com/goatnote-inc/robocache/video/ffmpeg"
