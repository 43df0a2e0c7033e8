package buffers

// Sizes of pages, in bytes.
const (
	PageSize = 4096
	HugePage = 2 << 20
)

// Allocator allocates the memory of batches and kept frames: page-locked, for example, so that a GPU copies from it, or
// a device's. Its calls may come from many goroutines, also after the loader's Close, when the last batch is released.
type Allocator interface {
	// Alloc returns n bytes, page aligned and outside the Go heap. A lack of memory is an error of its own class.
	Alloc(n int) ([]byte, error)
	// Free takes back what Alloc returned.
	Free(m []byte)
}

// Mappings allocates anonymous mappings of the system.
type Mappings struct{}

// Alloc returns n bytes, page aligned.
func (Mappings) Alloc(n int) ([]byte, error) { return MapMemory(n) }

// Free unmaps what Alloc returned.
func (Mappings) Free(m []byte) { UnmapMemory(m) }
