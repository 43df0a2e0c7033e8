// Package images contains the compiled kernels. For each source file of kernel/cuda/src it has
// machine code for sm_80, 86, 89, 90 and 100, and PTX for later architectures.
// scripts/cuda-images.sh compiles them. A test compares the hash of the sources with the hash
// stored with the images.
package images

import (
	"embed"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"strings"
	"sync"

	"github.com/klauspost/compress/zstd"

	"github.com/goatnote-inc/robocache"
)

// Manifest describes the images of a source file.
type Manifest struct {
	Source string `json:"source"` // for example fuse for src/fuse.cu
	// SHA-256 of the compiler's input; see Hash in kernel/cuda/tests/build
	Hash    string   `json:"hash"`
	NVRTC   string   `json:"nvrtc"`
	Options []string `json:"options"`
	Kernels []string `json:"kernels"`
	Images  []Entry  `json:"images"`
}

// Entry is one image of a Manifest.
type Entry struct {
	Arch int  `json:"arch"` // for example 90 for sm_90
	PTX  bool `json:"ptx,omitempty"`
	Size int  `json:"size"` // in bytes; the images are stored in the order of the entries
}

// Image is code that a device can load.
type Image struct {
	Arch int
	PTX  bool
	Code []byte // PTX ends with a zero byte
}

// Name returns the compiler's name of the target.
func (i Image) Name() string {
	if i.PTX {
		return fmt.Sprintf("compute_%d", i.Arch)
	}
	return fmt.Sprintf("sm_%d", i.Arch)
}

//go:embed data
var data embed.FS

// manifests reads the manifests once, by the name of the source.
var manifests = sync.OnceValue(func() map[string]*Manifest {
	out := map[string]*Manifest{}
	names, _ := data.ReadDir("data")
	for _, n := range names {
		if !strings.HasSuffix(n.Name(), ".json") {
			continue
		}
		b, err := data.ReadFile("data/" + n.Name())
		m := &Manifest{}
		if err == nil {
			err = json.Unmarshal(b, m)
		}
		if err != nil {
			// a test of this package reads all manifests, so this cannot happen
			panic("images: " + n.Name() + ": " + err.Error())
		}
		out[m.Source] = m
	}
	return out
})

// sources maps the name of each kernel to its source.
var sources = sync.OnceValue(func() map[string]string {
	out := map[string]string{}
	for _, m := range manifests() {
		for _, k := range m.Kernels {
			out[k] = m.Source
		}
	}
	return out
})

// Manifests returns all manifests, sorted by source.
func Manifests() []*Manifest {
	return slices.SortedFunc(
		maps.Values(manifests()),
		func(a, b *Manifest) int { return strings.Compare(a.Source, b.Source) },
	)
}

// Source returns the source file that contains a kernel, or "" if there is none.
func Source(kernel string) string { return sources()[kernel] }

// All unpacks and returns the images of a source.
func All(source string) ([]Image, error) {
	m := manifests()[source]
	if m == nil {
		return nil, robocache.Unsupported("CUDA", nil, "no image of %s", source)
	}
	packed, err := data.Open("data/" + source + ".zst")
	if err != nil {
		return nil, robocache.Unsupported("CUDA", nil, "no image of %s", source).WithCause(err)
	}
	z, err := zstd.NewReader(packed, zstd.WithDecoderConcurrency(1))
	if err != nil {
		return nil, err
	}
	defer z.Close()
	var out []Image
	for _, e := range m.Images {
		i := Image{Arch: e.Arch, PTX: e.PTX, Code: make([]byte, e.Size)}
		if _, err := io.ReadFull(z, i.Code); err != nil {
			return nil, robocache.Malformed("CUDA", nil, "images of %s", source).WithCause(err)
		}
		out = append(out, i)
	}
	return out, nil
}

// For returns the images of a source that a chip can run, best first. Machine code is first: it
// must be of the chip's generation and at most its revision, latest revision first. PTX follows.
func For(source string, major, minor int) ([]Image, error) {
	all, err := All(source)
	if err != nil {
		return nil, err
	}
	var out []Image
	for _, i := range all {
		if i.PTX && i.Arch <= major*10+minor || !i.PTX && i.Arch/10 == major && i.Arch%10 <= minor {
			out = append(out, i)
		}
	}
	sort.SliceStable(out, func(a, b int) bool {
		if out[a].PTX != out[b].PTX {
			return out[b].PTX
		}
		return out[a].Arch > out[b].Arch
	})
	return out, nil
}
