package video

import (
	"sync"

	"github.com/goatnote-inc/robocache"
)

var (
	backendMu sync.RWMutex
	backend   Backend
)

// RegisterBackend sets the decoders of the process. It is called from init. A later call replaces
// the earlier backend.
func RegisterBackend(b Backend) {
	backendMu.Lock()
	defer backendMu.Unlock()
	backend = b
}

// ActiveBackend returns the registered decoders, or an error if there are none.
func ActiveBackend() (Backend, error) {
	backendMu.RLock()
	defer backendMu.RUnlock()
	if backend == nil {
		return nil, robocache.Unsupported("decode video", nil, "no video decoder is in this build").
			WithHint(
				"build with cgo and the FFmpeg libraries (make native, CGO_ENABLED=1), " +
					"and import robocache/video/ffmpeg",
			)
	}
	return backend, nil
}
