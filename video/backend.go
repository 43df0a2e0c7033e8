package video

import (
	"sync"

	"github.com/goatnote-inc/robocache"
)

var (
	backendMu sync.RWMutex
	backend   Backend
)

// RegisterBackend makes b the process's decoders. A package calls it from init; the last one wins.
func RegisterBackend(b Backend) {
	backendMu.Lock()
	defer backendMu.Unlock()
	backend = b
}

// ActiveBackend gives the registered decoders, or says why there are none.
func ActiveBackend() (Backend, error) {
	backendMu.RLock()
	defer backendMu.RUnlock()
	if backend == nil {
		return nil, robocache.Unsupported("decode video", nil, "no video decoder is in this build").
			WithHint("build with cgo and the FFmpeg libraries (make native, CGO_ENABLED=1), and import robocache/video/ffmpeg")
	}
	return backend, nil
}
