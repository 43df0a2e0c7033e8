package buffers

// Page sizes in bytes.
const (
	PageSize = 4096
	HugePage = 2 << 20
)

// Allocator allocates the memory of batches and stored frames, for example page-locked memory that
// a GPU copies from, or memory of a device. It must be safe for concurrent use. Free is also called
// after the loader is closed, when the last batch is released.
type Allocator interface {
	// Alloc returns n bytes that begin at a page boundary and are outside the Go heap. It returns a
	// ResourceLimit error if there is no memory. The caller must call Free.
	Alloc(n int) ([]byte, error)
	// Free releases memory that Alloc returned.
	Free(m []byte)
}

// Mappings allocates anonymous memory mappings.
type Mappings struct{}

// Alloc returns n bytes at a page boundary.
func (Mappings) Alloc(n int) ([]byte, error) { return MapMemory(n) }

// Free unmaps memory that Alloc returned.
func (Mappings) Free(m []byte) { UnmapMemory(m) }
