// Package images holds the compiled kernels: for each source file of kernel/cuda/src machine code
// for sm_80, 86, 89, 90 and 100, and PTX for whatever comes after. scripts/cuda-images.sh makes
// them; a test compares the hash of the sources with the one that stands beside the images.
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

// Manifest says what the images of a source file are made of, and where they stand.
type Manifest struct {
	Source string `json:"source"` // fuse: src/fuse.cu
	// SHA-256 of what the compiler read; see Hash in kernel/cuda/tests/build
	Hash    string   `json:"hash"`
	NVRTC   string   `json:"nvrtc"`
	Options []string `json:"options"`
	Kernels []string `json:"kernels"`
	Images  []Entry  `json:"images"`
}

// Entry is one image of a Manifest.
type Entry struct {
	Arch int  `json:"arch"` // 90: sm_90
	PTX  bool `json:"ptx,omitempty"`
	Size int  `json:"size"` // bytes, in the order of the entries
}

// Image is what a device loads.
type Image struct {
	Arch int
	PTX  bool
	Code []byte // PTX ends with a zero byte
}

// Name is how a compiler calls the target.
func (i Image) Name() string {
	if i.PTX {
		return fmt.Sprintf("compute_%d", i.Arch)
	}
	return fmt.Sprintf("sm_%d", i.Arch)
}

//go:embed data
var data embed.FS

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
			// the test of the package reads them all
			panic("images: " + n.Name() + ": " + err.Error())
		}
		out[m.Source] = m
	}
	return out
})

var sources = sync.OnceValue(func() map[string]string {
	out := map[string]string{}
	for _, m := range manifests() {
		for _, k := range m.Kernels {
			out[k] = m.Source
		}
	}
	return out
})

// Manifests are all manifests, by source.
func Manifests() []*Manifest {
	return slices.SortedFunc(
		maps.Values(manifests()),
		func(a, b *Manifest) int { return strings.Compare(a.Source, b.Source) },
	)
}

// Source is the source file that has a kernel; "" if none has.
func Source(kernel string) string { return sources()[kernel] }

// All unpacks the images of a source.
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

// For gives the images of a source that a chip can run, the best first: machine code of its own
// generation and at most its own revision, the latest first, then PTX.
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
